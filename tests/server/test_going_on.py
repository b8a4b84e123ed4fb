"""Steering, answering, continuing and queueing over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

from .support import endless, frames, read_events, serving, start, talker, wait_for_text

pytestmark = pytest.mark.promise("P2", "P3")


def payer(paid: list[int]) -> Agent:
    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return Agent(ScriptedModel([Call("pay", {"amount": 7})], then="Done."), tools=[pay])


@pytest.mark.parametrize(
    ("said", "paid"),
    [
        ({"type": "approve"}, [7]),
        (True, [7]),
        ({"type": "approve", "arguments": {"amount": 3}}, [3]),
        ({"type": "deny", "reason": "too dear"}, []),
        (False, []),
    ],
)
def test_a_person_is_asked_and_answers(said, paid):
    done: list[int] = []
    with serving(payer(done)) as served, served.client() as client:
        run_id = start(client, session="shop")
        assert read_events(client, run_id)[-1][2]["stop_reason"] == "interrupt"
        asked = client.get(f"/runs/{run_id}").json()["run"]["interrupts"]
        assert [(each["tool_name"], each["arguments"]) for each in asked] == [("pay", {"amount": 7})]
        wrong = client.post(f"/runs/{run_id}/resume", json={"answers": [{"id": "nobody", "answer": True}]})
        assert wrong.status_code == 409
        silly = {"id": asked[0]["id"], "answer": {"type": "approve", "arguments": 5}}
        assert client.post(f"/runs/{run_id}/resume", json={"answers": [silly]}).status_code == 422
        answers = {"answers": [{"id": asked[0]["id"], "answer": said}]}
        resumed = client.post(f"/runs/{run_id}/resume", json=answers)
        assert resumed.status_code == 201
        next_id = resumed.json()["run"]["id"]
        assert next_id != run_id
        assert resumed.json()["run"]["session"] == "shop"
        assert read_events(client, next_id)[-1][2]["stop_reason"] == "end_turn"
        assert done == paid
        assert client.get(f"/runs/{run_id}").json()["run"]["interrupts"] == []
        assert client.post(f"/runs/{run_id}/resume", json=answers).status_code == 409


def test_a_stop_while_a_person_is_asked_clears_the_question():
    done: list[int] = []
    with serving(payer(done)) as served, served.client() as client:
        run_id = start(client, session="shop")
        read_events(client, run_id)
        stopped = client.post(f"/runs/{run_id}/cancel", json={"reason": "never mind"})
        assert (stopped.status_code, stopped.json()["accepted"]) == (200, True)
        assert stopped.json()["run"]["interrupts"] == []
        assert client.post(f"/runs/{run_id}/cancel").json()["accepted"] is False
        assert read_events(client, start(client, "something else", session="shop"))[-1][2]["stop_reason"] == "end_turn"
        assert done == []


def test_a_run_is_steered():
    model = ScriptedModel([Say("I shall go left"), Stall()], then="Right it is.")
    with serving(Agent(model)) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        assert client.post(f"/runs/{run_id}/steer", json={"text": ""}).status_code == 422
        assert client.post(f"/runs/{run_id}/steer", json={"text": "Go right"}).status_code == 202
        events = read_events(client, run_id)
        assert events[-1][2]["stop_reason"] == "end_turn"
        assert "steered" in [kind for _, kind, _ in events]
        assert model.requests[1].messages[-1].text == "Go right"
        too_late = client.post(f"/runs/{run_id}/steer", json={"text": "Back"})
        assert (too_late.status_code, too_late.json()["error"]["code"]) == (409, "too_late")


def test_a_cut_answer_is_continued():
    model = ScriptedModel([Say("Once upon"), Stall()], then=" a time.")
    with serving(Agent(model)) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        assert client.post(f"/runs/{run_id}/continue").status_code == 409
        client.post(f"/runs/{run_id}/cancel?wait=10")
        continued = client.post(f"/runs/{run_id}/continue", json={})
        assert continued.status_code == 201
        next_id = continued.json()["run"]["id"]
        assert read_events(client, next_id)[-1][2]["stop_reason"] == "end_turn"
        moved_on = client.post(f"/runs/{run_id}/continue")
        assert (moved_on.status_code, moved_on.json()["error"]["code"]) == (409, "moved_on")


def test_a_prompt_waits_its_turn_when_it_asks_to():
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    with serving(Agent(ScriptedModel([Call("wait")], then="ok"), tools=[wait])) as served, served.client() as client:
        first = start(client, session="s")
        with client.stream("GET", f"/runs/{first}/events") as response:
            next(event for event in frames(response.iter_lines()) if event[1] == "tool_started")
        second = start(client, session="s", on_busy="queue")
        assert client.get(f"/runs/{second}").json()["run"]["state"] == "queued"
        assert client.post("/runs", json={"prompt": "x", "session": "s"}).status_code == 409
        served.do(gate.set)
        assert read_events(client, second)[-1][2]["stop_reason"] == "end_turn"
        assert client.get(f"/runs/{first}").json()["run"]["stop_reason"] == "end_turn"


def test_a_queued_run_is_stopped_without_having_begun():
    with serving(endless()) as served, served.client() as client:
        first = start(client, session="s")
        wait_for_text(client, first)
        second = start(client, session="s", on_busy="queue")
        assert client.post(f"/runs/{second}/cancel?wait=10").json()["receipt"]["stop_reason"] == "cancelled"
        assert client.get(f"/runs/{first}").json()["run"]["state"] == "running"


def test_going_on_belongs_to_the_key_that_began():
    with serving(talker()) as served, served.client() as client:
        assert client.post("/runs/nothing/resume", json={"answers": []}).status_code == 404
        assert client.post("/runs/nothing/continue").status_code == 404
        run_id = start(client)
        read_events(client, run_id)
        assert client.post(f"/runs/{run_id}/resume", json={"answers": []}).status_code == 409
