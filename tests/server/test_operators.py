"""The usage of all keys, for those that the settings name as operators; no other key sees anything of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from quiesce import Agent
from quiesce.cli import main
from quiesce.client import Client
from quiesce.errors import ConfigurationError, ServerProblem
from quiesce.models.scripted import Say, ScriptedModel, Used
from quiesce.server import Keys, Settings, create_app, hash_key, new_key

from .support import Served, serving, start

pytestmark = [pytest.mark.promise("P8"), pytest.mark.timeout(60)]

OPERATORS = Settings(operators=("ops",), keep_runs=2, keep_sessions=2)


class People:
    """Three keys, one of them an operator's, and a server with a store."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "s.db"
        self.key = {name: new_key() for name in ("ann", "bob", "ops")}

    def app(self, settings: Settings = OPERATORS) -> Any:
        answer = [Say("Fine."), Used(input=10, output=1)]
        agents = [Agent(ScriptedModel(then=answer, name="m"), name=name) for name in ("one", "two")]
        keys = Keys({name: hash_key(key) for name, key in self.key.items()})
        return create_app(*agents, keys=keys, settings=settings, store=self.store)

    def use(self, served: Served, who: str, times: int, **body: Any) -> list[str]:
        """Let someone start runs, and wait for their ends."""
        with served.client(self.key[who]) as client:
            runs = [start(client, **body) for _ in range(times)]
            for run in runs:
                assert "run_ended" in client.get(f"/runs/{run}/events").text
        return runs

    def report(self, served: Served, **query: str) -> dict[str, Any]:
        """What the operator reads."""
        with served.client(self.key["ops"]) as client:
            answer = client.get("/usage/keys", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def calls(report: dict[str, Any]) -> dict[str, int]:
    """The model calls by key. The sums by day, and in all, say the same."""
    by_key = {each["key"]: each["usage"]["calls"] for each in report["keys"]}
    assert report["total"]["calls"] == sum(by_key.values()) == sum(row["usage"]["calls"] for row in report["days"])
    return by_key


@pytest.mark.promise("P6", "P8")
def test_an_operator_reads_the_usage_of_every_key_also_of_what_is_deleted_or_not_in_memory(tmp_path: Path):
    people = People(tmp_path)
    with serving(app=people.app()) as served:
        people.use(served, "ann", 5, session="diary-of-ann", on_busy="queue")
        (gone, _) = people.use(served, "bob", 2, agent="two")
        with served.client(people.key["bob"]) as bob:
            assert bob.delete(f"/runs/{gone}").status_code == 204
        assert calls(people.report(served)) == {"ann": 5, "bob": 2}
        assert calls(people.report(served, key="bob")) == {"bob": 2}
        assert calls(people.report(served, agent="one")) == {"ann": 5}
        day = people.report(served)["keys"][0]["last_day"]
        assert calls(people.report(served, since=day, until=day)) == {"ann": 5, "bob": 2}
        assert people.report(served, until="2020-01-01")["keys"] == []
        assert "diary-of-ann" not in str(people.report(served))
    with serving(app=people.app()) as served:  # nobody has asked this process for anything
        assert calls(people.report(served)) == {"ann": 5, "bob": 2}
        memory = served.do(lambda: {run.info.owner for run in served.app.services.runs.ended()})
        assert memory == set(), "another's runs are read into memory for a sum"
        people.use(served, "ann", 1)
        assert calls(people.report(served)) == {"ann": 6, "bob": 2}
        with served.client(people.key["ann"]) as ann:
            assert ann.get("/usage").json()["total"]["calls"] == 6
            assert ann.delete("/sessions/diary-of-ann").status_code == 204
        assert calls(people.report(served)) == {"ann": 6, "bob": 2}


def test_a_key_that_is_no_operators_is_told_nothing(tmp_path: Path):
    people = People(tmp_path)
    with serving(app=people.app()) as served:
        people.use(served, "ann", 1)
        people.use(served, "ops", 1)
        with served.client(people.key["bob"]) as bob:
            for query in ({}, {"key": "ann"}, {"key": "bob"}, {"key": "nobody"}):
                refused = bob.get("/usage/keys", params=query)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_operator")
                assert "ann" not in refused.text
                own = bob.get("/usage", params=query).json()
                assert (own["total"]["calls"], own["keys"]) == (0, [])
        with served.client(people.key["ops"]) as ops:
            assert ops.get("/usage").json()["total"]["calls"] == 1, "their own usage is what it is for any key"
            assert ops.get("/usage").json()["keys"] == ["ann", "ops"]
            assert ops.get("/runs").json()["runs"][0]["id"] not in people.use(served, "ann", 1)
            assert len(ops.get("/runs").json()["runs"]) == 1, "an operator reads figures, not runs"


def test_the_client_has_it_with_types(tmp_path: Path):
    people = People(tmp_path)

    async def ask(url: str) -> None:
        async with Client(url, people.key["ops"]) as client:
            report = await client.show_usage_by_key(agent="one", key="ann")
            assert [(each.key, each.usage.input.value) for each in report.keys] == [("ann", 10)]
        async with Client(url, people.key["ann"]) as client:
            with pytest.raises(ServerProblem, match="only its own usage") as refused:
                await client.show_usage_by_key()
            assert (refused.value.status, refused.value.code) == (403, "not_operator")

    with serving(app=people.app()) as served:
        people.use(served, "ann", 1)
        asyncio.run(ask(served.url))


def test_the_only_user_of_a_server_without_keys_is_its_operator(tmp_path: Path):
    people = People(tmp_path)
    with serving(app=people.app()) as served:
        people.use(served, "ann", 1)
    alone = create_app(Agent(ScriptedModel(then="Fine.")), store=people.store)
    with serving(app=alone) as served, httpx2.Client(base_url=served.url) as client:
        assert calls(client.get("/usage/keys").json()) == {"ann": 1}


def test_an_application_names_its_operators_by_owner():
    def owner_of(request: Request) -> str:
        return request.headers["x-user"]

    app = create_app(Agent(ScriptedModel(then="Fine.")), owner_of=owner_of, settings=Settings(operators=("ops",)))
    with serving(app=app) as served, served.client() as client:
        statuses = {user: client.get("/usage/keys", headers={"x-user": user}) for user in ("ops", "local", "ann")}
        assert {user: answer.status_code for user, answer in statuses.items()} == {"ops": 200, "local": 403, "ann": 403}


def test_an_operator_without_a_key_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ConfigurationError, match="no API key 'opps'"):
        People(tmp_path).app(Settings(operators=("opps",)))
    monkeypatch.setenv("QUIESCE_API_KEYS", f"ann={new_key()}")
    assert main(["serve", "tests.cli.agents:endless", "--operator", "ops", "--port", "0"]) == 1
    assert "There is no API key 'ops' for an operator." in capsys.readouterr().err
