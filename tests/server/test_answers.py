"""Answers over HTTP: one by one, edited, and too late, with every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import create_app
from tests.sessions.conftest import StoreMaker, databases, new_store, postgres

from .support import frames, read_events, serving, start

pytestmark = pytest.mark.promise("P4", "P9")
__all__ = ["databases", "new_store", "postgres"]  # fixtures


class Builds:
    """Two builds that need a yes; each waits for the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began: list[int] = []
        self.ended: list[int] = []

    def agent(self, *, waits: bool = True) -> Agent:
        @tool(requires_approval=True, preview=lambda arguments: f"-old\n+new {arguments['number']}")
        async def build(number: int) -> str:
            """Build something."""
            self.began.append(number)
            if waits:
                await self.gate.wait()
            self.ended.append(number)
            return f"built {number}"

        calls = [Call("build", {"number": 1}), Call("build", {"number": 2})]
        return Agent(ScriptedModel(calls, then="Done."), tools=[build])


def resume(client: Any, run_id: str, **answers: Any) -> Any:
    given = [{"id": f"{call}:approval", "answer": answer} for call, answer in answers.items()]
    return client.post(f"/runs/{run_id}/resume", json={"answers": given})


def asked(client: Any, run_id: str) -> list[str]:
    return [each["id"] for each in client.get(f"/runs/{run_id}").json()["run"]["interrupts"]]


def tool_started(client: Any, run_id: str, count: int) -> None:
    """Read the events of a run until so many of its tools have started."""
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        started = (event for event in frames(response.iter_lines()) if event[1] == "tool_started")
        for _ in range(count):
            next(started)


def answered_one_by_one(store: Any) -> None:
    builds = Builds()
    app = create_app(builds.agent(), store=store)
    with serving(app=app) as served, served.client() as client:
        run_id = start(client, session="s")
        assert read_events(client, run_id)[-1][2]["stop_reason"] == "interrupt"
        detail = client.get(f"/runs/{run_id}").json()["run"]
        assert [each["preview"] for each in detail["interrupts"]] == ["-old\n+new 1", "-old\n+new 2"]
        first = resume(client, run_id, call_1=True)
        assert first.status_code == 201
        resumed = first.json()["run"]["id"]
        tool_started(client, resumed, 1)
        assert asked(client, run_id) == asked(client, resumed) == ["call_2:approval"]
        again = resume(client, run_id, call_1=True)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "not_asked")
        wrong = resume(client, resumed, call_2={"type": "approve", "arguments": {"number": "many"}})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_answer")
        assert "number" in wrong.json()["error"]["message"]
        second = resume(client, run_id, call_2=True)
        assert (second.status_code, second.json()["run"]["id"]) == (200, resumed)
        tool_started(client, resumed, 2)
        assert builds.ended == []
        assert asked(client, resumed) == []
        served.do(builds.gate.set)
        assert read_events(client, resumed)[-1][2]["stop_reason"] == "end_turn"
        assert sorted(builds.ended) == [1, 2]


def refused_when_stale_or_wrong(store: Any) -> None:
    builds = Builds()
    with serving(app=create_app(builds.agent(waits=False), store=store)) as served, served.client() as client:
        run_id = start(client, session="s")
        read_events(client, run_id)
        wrong = resume(client, run_id, call_1={"type": "approve", "arguments": {"size": 1}})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_answer")
        assert asked(client, run_id) == ["call_1:approval", "call_2:approval"]
        resumed = resume(client, run_id, call_1={"type": "approve", "arguments": {"number": 7}}).json()["run"]["id"]
        assert read_events(client, resumed)[-1][2]["stop_reason"] == "interrupt"
        for earlier in (run_id, resumed):
            stale = resume(client, earlier, call_1=True)  # answered before
            assert (stale.status_code, stale.json()["error"]["code"]) == (409, "not_asked")
        assert client.post(f"/runs/{resumed}/cancel").json()["accepted"] is True
        for earlier in (run_id, resumed):
            stale = resume(client, earlier, call_2=True)  # withdrawn by a stop
            assert (stale.status_code, stale.json()["error"]["code"]) == (409, "not_asked")
        assert builds.ended == [7]
        assert {each["stop_reason"] for each in client.get("/runs").json()["runs"]} == {"interrupt"}


@pytest.mark.parametrize("check", [answered_one_by_one, refused_when_stale_or_wrong])
def test_without_a_store(check: Callable[[Any], None]) -> None:
    check(None)


@pytest.mark.parametrize("check", [answered_one_by_one, refused_when_stale_or_wrong])
def test_with_every_store(check: Callable[[Any], None], new_store: StoreMaker) -> None:
    check(new_store())


def test_an_answer_that_another_server_has_given_is_stale(new_store: StoreMaker) -> None:
    builds = Builds()
    ours, theirs = (create_app(builds.agent(waits=False), store=new_store()) for _ in range(2))
    with serving(app=ours) as served, served.client() as client:
        run_id = start(client, session="s")
        read_events(client, run_id)
        with serving(app=theirs) as other, other.client() as elsewhere:
            resumed = resume(elsewhere, run_id, call_1=False, call_2=True)
            assert resumed.status_code == 201
            read_events(elsewhere, resumed.json()["run"]["id"])
        stale = resume(client, run_id, call_1=True)
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "not_asked")
        assert builds.ended == [2]
