"""The audit: who has started, stopped, answered, steered and deleted what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.cli.main import main
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import create_app
from quiesce.server.audit import MOST, Audit
from quiesce.server.schemas import AuditPage

from .support import endless, read_events, serving, start, talker, two_keys, wait_for_text

pytestmark = pytest.mark.promise("P8", "P9")


def entries(client: httpx2.Client, query: str = "") -> list[dict[str, Any]]:
    return client.get(f"/audit{query}").json()["entries"]


def actions(client: httpx2.Client, query: str = "") -> list[str]:
    return [each["action"] for each in entries(client, query)]


def test_who_started_stopped_and_steered_what_and_nothing_of_another_key():
    ann, bob, keys = two_keys()
    with serving(endless(), keys=keys) as served, served.client(ann) as anns, served.client(bob) as bobs:
        run_id = start(anns, "A long story", session="tale")
        wait_for_text(anns, run_id)
        assert anns.post(f"/runs/{run_id}/steer", json={"text": "shorter"}).status_code == 202
        wait_for_text(anns, run_id)
        body = {"reason": "enough", "mode": "now"}
        anns.post(f"/runs/{run_id}/cancel?wait=20", json=body)
        anns.post(f"/runs/{run_id}/cancel", json=body)  # too late: it changes nothing
        anns.delete("/sessions/tale")
        found = entries(anns)
        assert [each["action"] for each in found] == ["delete_session", "stop", "steer", "start"]
        assert {each["who"] for each in found} == {"ann"}
        assert {each["session"] for each in found} == {"tale"}
        assert [each["detail"] for each in found] == ["", "now: enough", "shorter", "A long story"]
        assert [each["run"] for each in found[1:]] == [run_id] * 3
        assert actions(anns, f"?run={run_id}&action=stop") == ["stop"]
        assert entries(bobs) == []
        assert anns.get("/audit?action=nothing").status_code == 422
        assert anns.get("/audit?before=0").status_code == 422


def test_answers_and_approvals_in_advance():
    @tool(requires_approval=True)
    def pay(to: str) -> str:
        return to

    call = [Call("pay", {"to": "Ann"})]
    with serving(Agent(ScriptedModel(call, call, "Done."), tools=[pay])) as served, served.client() as client:
        run_id = start(client, "Pay", session="s")
        read_events(client, run_id)
        asked = client.get(f"/runs/{run_id}").json()["run"]["interrupts"][0]["id"]
        given = {"id": asked, "answer": {"type": "approve", "arguments": {"to": "Bob"}}, "remember": {}}
        resumed = client.post(f"/runs/{run_id}/resume", json={"answers": [given]}).json()["run"]["id"]
        read_events(client, resumed)
        rule = client.get("/approvals").json()["approvals"][0]["id"]
        client.delete(f"/approvals/{rule}")
        found = [(each["action"], each["who"], each["detail"]) for each in entries(client)]
        assert found[0] == ("disallow", "local", f"pay ({rule})")
        assert sorted(found[1:4]) == [
            ("allow", "local", f"pay ({rule})"),
            ("approve", f"approval {rule}", "pay"),
            ("approve", "local", "pay with other arguments"),
        ]


def test_it_survives_a_restart_and_says_what_the_server_has_stopped(tmp_path: Path):
    def open_server() -> Any:
        return serving(app=create_app(endless(), store=tmp_path / "s.db"))

    with open_server() as served, served.client() as client:
        run_id = start(client, "A long story")
        wait_for_text(client, run_id)
    with open_server() as served, served.client() as client:
        stop, begun = entries(client)
        assert (begun["action"], begun["run"], begun["number"]) == ("start", run_id, 1)
        assert (stop["action"], stop["who"], stop["run"]) == ("stop", "shutdown", run_id)
        client.delete(f"/runs/{run_id}")
        assert actions(client) == ["delete_run", "stop", "start"], "what it tells of may be gone"


def test_it_is_no_conversation_to_go_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = tmp_path / "s.db"
    with serving(app=create_app(talker(), store=store)) as served, served.client() as client:
        run_id = start(client, "Hello", session="mine")
        read_events(client, run_id)
        assert actions(client) == ["start"]
    assert main(["sessions", "list", "--store", str(store)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["local/mine"]


def test_it_is_bounded_and_read_in_pages():
    async def fill() -> tuple[AuditPage, list[int]]:
        audit = Audit(None)
        for number in range(MOST + 130):
            audit.note("ann", "steer", detail=str(number))
            if number % 97 == 0:
                await audit.read("ann")
        newest = await audit.read("ann", limit=MOST * 2)
        seen, before = list[int](), None
        while True:
            page = await audit.read("ann", limit=300, before=before)
            seen += [each.number for each in page.entries]
            before = page.next
            if before is None:
                await audit.close()
                return newest, seen

    newest, seen = asyncio.run(fill())
    assert MOST - 50 <= len(newest.entries) <= MOST
    assert [each.number for each in newest.entries] == seen
    assert seen == list(range(MOST + 130, MOST + 130 - len(seen), -1))
    assert newest.entries[0].detail == str(MOST + 129)


def test_a_request_that_is_refused_is_not_in_it():
    with serving(talker()) as served, served.client() as client:
        client.post("/runs", json={"prompt": ""})
        client.post("/runs/none/cancel", json={})
        client.delete("/sessions/none")
        assert entries(client) == []
