"""Starting, watching and stopping runs over HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall, Used
from quiesce.server import Settings, create_app

from .support import endless, frames, read_events, serving, start, talker, wait_for_text

pytestmark = pytest.mark.promise("P1", "P7")


def test_a_run_from_start_to_receipt():
    with serving(talker(name="greeter")) as served, served.client() as client:
        run_id = start(client, "Hello there")
        events = read_events(client, run_id)
        assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
        assert [kind for _, kind, _ in events].count("run_ended") == 1
        assert events[-1][1] == "run_ended"
        shown = client.get(f"/runs/{run_id}").json()
        assert shown["run"]["state"] == "ended"
        assert shown["run"]["stop_reason"] == "end_turn"
        assert shown["run"]["agent"] == "greeter"
        assert shown["run"]["prompt"] == "Hello there"
        assert shown["run"]["text_tail"] == "Good morning."
        assert [message["type"] for message in shown["messages"]] == ["user", "assistant"]
        assert shown["receipt"] == events[-1][2]["receipt"]
        assert [run["id"] for run in client.get("/runs?state=ended&limit=5").json()["runs"]] == [run_id]
        assert client.get("/runs?state=running").json()["runs"] == []
        assert client.delete(f"/runs/{run_id}").status_code == 204
        assert client.get(f"/runs/{run_id}").status_code == 404


def test_a_stop_with_wait_gives_the_receipt():
    with serving(endless()) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        assert client.delete(f"/runs/{run_id}").status_code == 409
        stopped = client.post(f"/runs/{run_id}/cancel?wait=10", json={"reason": "enough"})
        assert stopped.status_code == 200
        answer = stopped.json()
        assert answer["accepted"] is True
        assert answer["receipt"]["stop_reason"] == "cancelled"
        assert answer["receipt"]["cause"]["source"] == "user"
        assert answer["receipt"]["cause"]["reason"] == "enough"
        assert answer["run"]["state"] == "ended"
        again = client.post(f"/runs/{run_id}/cancel")
        assert again.status_code == 200
        assert again.json()["accepted"] is False
        assert again.json()["receipt"] == answer["receipt"]


def test_the_usage_of_an_answer_that_is_being_streamed_is_estimated_and_no_unknown_figure_is_zero():
    agent = Agent(ScriptedModel([Say("Once upon a time there was a lighthouse "), Stall()]))
    with serving(agent) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        shown, listed = client.get(f"/runs/{run_id}").json()["run"], client.get("/runs").json()["runs"][0]
        stopping = client.post(f"/runs/{run_id}/cancel").json()["run"]
    for usage in (shown["usage"], listed["usage"]):
        assert usage["output"]["value"] > 0
        assert usage["input"]["value"] > 0
    for usage in (shown["usage"], listed["usage"], stopping["usage"]):
        assert usage["cache_read"] == usage["cache_read"] | {"value": None, "source": "unknown"}


def test_stopped_is_never_said_before_it_is_true_and_a_stop_escalates():
    release = threading.Event()

    @tool(on_stop="finish", grace=30)
    async def build() -> str:
        await asyncio.get_running_loop().run_in_executor(None, release.wait, 30)
        return "built"

    with (
        serving(Agent(ScriptedModel([Call("build")], then="done"), tools=[build])) as served,
        served.client() as client,
    ):
        run_id = start(client)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            events = frames(response.iter_lines())
            next(event for event in events if event[1] == "tool_started")
            first = client.post(f"/runs/{run_id}/cancel?wait=0.05", json={"mode": "after_turn"})
            assert first.status_code == 202
            assert first.json()["receipt"] is None
            assert first.json()["run"]["state"] == "stopping"
            assert first.json()["run"]["waiting_for"] == ["build"]
            assert first.json()["run"]["mode"] == "after_turn"
            second = client.post(f"/runs/{run_id}/cancel", json={"mode": "now"})
            assert second.json()["accepted"] is True
            assert second.json()["run"]["mode"] == "now"
            less = client.post(f"/runs/{run_id}/cancel", json={"mode": "after_tools"})
            assert less.json()["accepted"] is False
            release.set()
            last = list(events)[-1]
        assert last[1] == "run_ended"
        assert last[2]["receipt"]["calls"][0]["outcome"] == "completed"


@pytest.mark.promise("P3", "P8")
def test_events_resume_where_the_reader_was_cut():
    with serving(endless("abcdefgh" * 8)) as served, served.client() as client:
        run_id = start(client)
        seen = wait_for_text(client, run_id)
        client.post(f"/runs/{run_id}/cancel?wait=10")
        rest = read_events(client, run_id, **{"Last-Event-ID": str(seen)})
        assert [number for number, _, _ in rest] == list(range(seen + 1, seen + 1 + len(rest)))
        with client.stream("GET", f"/runs/{run_id}/events?after={seen}") as response:
            assert list(frames(response.iter_lines())) == rest
        everything = read_events(client, run_id)
        assert everything[seen:] == rest
        assert read_events(client, run_id, **{"Last-Event-ID": "999999"}) == []
        assert client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_full_log_says_which_events_are_gone():
    settings = Settings(log_bytes=4000)
    with serving(talker("word " * 2000), settings=settings) as served, served.client() as client:
        run_id = start(client)
        read_events(client, run_id)
        events = read_events(client, run_id)
        number, kind, data = events[0]
        assert kind == "gap"
        assert data == {"type": "gap", "first": 1, "last": number}
        assert events[1][0] == number + 1
        assert events[-1][1] == "run_ended"
        assert served.do(lambda: served.app.services.runs.newest_first("local")[0].log.size) < 8000


def test_heartbeats_keep_a_silent_stream_alive():
    with serving(endless(), settings=Settings(heartbeat=0.05)) as served, served.client() as client:
        run_id = start(client)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            assert next(line for line in response.iter_lines() if line.startswith(":")) == ": ping"


@pytest.mark.promise("P8")
def test_the_same_idempotency_key_starts_one_run():
    with serving(endless()) as served, served.client() as client:
        headers = {"Idempotency-Key": "order-66"}
        first = client.post("/runs", json={"prompt": "a"}, headers=headers)
        second = client.post("/runs", json={"prompt": "a"}, headers=headers)
        assert (first.status_code, second.status_code) == (201, 200)
        assert first.json()["run"]["id"] == second.json()["run"]["id"]
        assert client.post("/runs", json={"prompt": "b"}, headers=headers).status_code == 422
        assert len(client.get("/runs").json()["runs"]) == 1
        run_id = first.json()["run"]["id"]
        client.post(f"/runs/{run_id}/cancel?wait=5")
        client.delete(f"/runs/{run_id}")
        assert client.post("/runs", json={"prompt": "a"}, headers=headers).status_code == 410


def test_concurrent_starts_with_one_idempotency_key_start_one_run():
    async def main(served):
        async with served.async_client() as client:
            headers = {"Idempotency-Key": "k"}
            answers = await asyncio.gather(
                *(client.post("/runs", json={"prompt": "a"}, headers=headers) for _ in range(20))
            )
        assert len({answer.json()["run"]["id"] for answer in answers}) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]

    with serving(endless()) as served:
        asyncio.run(main(served))


@pytest.mark.promise("P8")
def test_a_run_whose_readers_are_gone_is_stopped_after_the_grace_if_it_wants_that():
    with serving(endless(), settings=Settings(disconnect_grace=0.1)) as served, served.client() as client:
        goes_on = start(client, on_disconnect="continue")
        ends = start(client, on_disconnect="cancel")
        wait_for_text(client, goes_on)
        wait_for_text(client, ends)
        served.at_rest(ends)
        served_ends = client.get(f"/runs/{ends}").json()
        assert served_ends["receipt"]["cause"]["source"] == "disconnect"
        assert client.get(f"/runs/{goes_on}").json()["run"]["state"] == "running"


def test_a_reader_that_comes_back_within_the_grace_keeps_the_run():
    with serving(endless(), settings=Settings(disconnect_grace=600)) as served, served.client() as client:
        run_id = start(client, on_disconnect="cancel", disconnect_grace=0.3)
        for _ in range(2):
            with client.stream("GET", f"/runs/{run_id}/events") as response:
                lines = frames(response.iter_lines())
                next(lines)
                # Longer than the grace since the last reader left: only this reader keeps the run alive.
                served.pause(0.5)
                assert client.get(f"/runs/{run_id}").json()["run"]["state"] == "running"
        served.at_rest(run_id)
        assert client.get(f"/runs/{run_id}").json()["receipt"]["cause"]["source"] == "disconnect"


def test_a_session_goes_on_and_one_run_at_a_time_holds_it():
    model = ScriptedModel("one", "two", then=[Say("three"), Stall()])
    with serving(Agent(model)) as served, served.client() as client:
        for prompt in ("first", "second"):
            read_events(client, start(client, prompt, session="chat"))
        assert len(client.get("/sessions/chat").json()["messages"]) == 4
        third = start(client, "third", session="chat")
        busy = client.post("/runs", json={"prompt": "fourth", "session": "chat"})
        assert busy.status_code == 409
        assert busy.json()["error"]["code"] == "session_busy"
        assert client.get("/sessions").json()["sessions"][0]["run"] == third
        assert client.delete("/sessions/chat").status_code == 409
        client.post(f"/runs/{third}/cancel?wait=5")
        assert len(client.get("/runs?session=chat").json()["runs"]) == 3
        assert client.delete("/sessions/chat").status_code == 204
        assert client.get("/sessions/chat").status_code == 404
        assert len(model.requests[1].messages) == 3


def test_a_run_without_a_session_has_a_conversation_of_its_own():
    model = ScriptedModel(then="yes")
    with serving(Agent(model)) as served, served.client() as client:
        read_events(client, start(client, "secret"))
        read_events(client, start(client, "other"))
        assert [len(request.messages) for request in model.requests] == [1, 1]


@pytest.mark.promise("P6")
def test_usage_per_day_and_model_survives_forgetting():
    model = ScriptedModel(then=[Say("x"), Used(input=10, output=3)], name="m")
    with serving(Agent(model), settings=Settings(keep_runs=2)) as served, served.client() as client:
        for _ in range(5):
            read_events(client, start(client))
        assert len(client.get("/runs").json()["runs"]) == 2
        usage = client.get("/usage").json()
        assert usage["total"]["calls"] == 5
        assert usage["total"]["input"] == {"value": 50, "low": 50, "high": 50, "source": "reported"}
        assert [(row["model"], row["usage"]["output"]["value"]) for row in usage["days"]] == [("m", 15)]


def test_limits_on_runs_and_streams():
    settings = Settings(max_runs_per_key=2, max_streams_per_key=1)
    with serving(endless(), settings=settings) as served, served.client() as client:
        first, _ = start(client), start(client)
        refused = client.post("/runs", json={"prompt": "x"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        with client.stream("GET", f"/runs/{first}/events") as response:
            reading = frames(response.iter_lines())  # held: a reader that is let go of hangs up
            next(reading)
            assert client.get(f"/runs/{first}/events").status_code == 429
        client.post(f"/runs/{first}/cancel?wait=5")
        assert client.post("/runs", json={"prompt": "x"}).status_code == 201


def test_agents_health_and_the_openapi_document():
    @tool(on_stop="finish", grace=3)
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    with serving(talker(name="a", tools=[pay]), talker(name="b")) as served, served.client() as client:
        agents = client.get("/agents").json()["agents"]
        assert [agent["name"] for agent in agents] == ["a", "b"]
        assert agents[0]["tools"] == [{"name": "pay", "description": "Pay.", "on_stop": "finish", "grace": 3.0}]
        assert client.get("/healthz").json()["status"] == "ok"
        assert client.get("/openapi.json").json()["openapi"] == "3.1.0"
        run_id = start(client, agent="b")
        assert client.get(f"/runs/{run_id}").json()["run"]["agent"] == "b"
        assert client.post("/runs", json={"prompt": "x", "agent": "c"}).status_code == 422


def test_what_a_tool_reports_reaches_readers_whatever_it_is():
    class Odd:
        def __repr__(self) -> str:
            return "<odd>"

    @tool
    async def work():
        yield {"thing": Odd(), 3: {1, 2}}
        yield "\ud800 lonely"
        yield "fine"

    with serving(Agent(ScriptedModel([Call("work")], then="ok"), tools=[work])) as served, served.client() as client:
        run_id = start(client)
        events = read_events(client, run_id)
        assert events[-1][2]["stop_reason"] == "end_turn"
        assert "<odd>" in str([data for _, kind, data in events if kind == "tool_progress"])
        assert client.get(f"/runs/{run_id}").status_code == 200


@pytest.mark.promise("P7")
def test_a_failed_run_says_so():
    with serving(Agent(ScriptedModel())) as served, served.client() as client:
        run_id = start(client)
        assert read_events(client, run_id)[-1][2]["stop_reason"] == "error"
        assert client.get(f"/runs/{run_id}").json()["run"]["error"]


@pytest.mark.promise("P4")
def test_one_tool_call_is_stopped_and_the_run_goes_on():
    @tool
    async def dig() -> str:
        await asyncio.sleep(3600)
        return "gold"

    model = ScriptedModel([Call("dig", id="call_1")], then="No gold.")
    with serving(Agent(model, tools=[dig])) as served, served.client() as client:
        run_id = start(client)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            events = frames(response.iter_lines())
            next(event for event in events if event[1] == "tool_started")
            assert client.post(f"/runs/{run_id}/tools/call_9/cancel").json()["accepted"] is False
            stopped = client.post(f"/runs/{run_id}/tools/call_1/cancel", json={"reason": "too deep"})
            assert (stopped.status_code, stopped.json()) == (202, {"accepted": True, "delivered": True})
            assert list(events)[-1][2]["stop_reason"] == "end_turn"
        assert client.get(f"/runs/{run_id}").json()["receipt"]["calls"][0]["outcome"] == "cancelled"
        assert client.post(f"/runs/{run_id}/tools/call_1/cancel").json()["accepted"] is False


@pytest.mark.promise("P4")
def test_what_a_run_did_is_undone_on_request():
    written: list[str] = []

    @tool
    async def write(name: str) -> str:
        written.append(name)
        return name

    @write.undo
    async def unwrite(result: str) -> None:
        written.remove(result)

    model = ScriptedModel(
        [Call("write", {"name": "a"})],
        "Done.",
        [Call("write", {"name": "b"})],
        then=[Say("Now"), Stall()],
    )
    with serving(Agent(model, tools=[write])) as served, served.client() as client:
        first = start(client)
        read_events(client, first)
        assert written == ["a"]
        undone = client.post(f"/runs/{first}/undo", json={})
        assert undone.status_code == 200
        assert [each["outcome"] for each in undone.json()["receipt"]["undo"]] == ["undone"]
        assert written == []
        assert len(client.post(f"/runs/{first}/undo").json()["receipt"]["undo"]) == 1
        second = start(client)
        wait_for_text(client, second)
        assert client.post(f"/runs/{second}/undo").status_code == 409
        stopped = client.post(f"/runs/{second}/cancel?wait=10", json={"undo": True}).json()
        assert [each["outcome"] for each in stopped["receipt"]["undo"]] == ["undone"]
        assert written == []


def test_what_is_sent_in_two_parts_does_not_wait_for_an_acknowledgement():
    with serving(talker()) as served, served.client() as client:  # its listening socket does not name TCP
        client.get("/healthz")
        (connection,) = served.do(lambda: list(served.server.server_state.connections))
        made = connection.transport.get_extra_info("socket")
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.promise("P8")
@pytest.mark.parametrize("stored", [False, True])
def test_a_request_that_is_refused_leaves_no_session(tmp_path: Path, *, stored: bool):
    app = create_app(talker(name="one"), talker(name="two"), store=tmp_path / "s.db" if stored else None)
    with serving(app=app) as served, served.client() as client:
        blank = {"prompt": " ", "session": "s"}
        assert client.post("/runs", json={**blank, "agent": "one"}).status_code == 422
        assert client.get("/sessions").json() == {"sessions": []}
        read_events(client, start(client, session="s", agent="two"))
        assert client.post("/runs", json={**blank, "agent": "two"}).status_code == 422
        (session,) = client.get("/sessions").json()["sessions"]
        assert (session["agent"], session["messages"]) == ("two", 2)


def test_a_stop_with_undo_of_a_question_does_not_wait_for_ever():
    undoing, go_on = threading.Event(), threading.Event()

    @tool
    def write(name: str) -> str:
        return name

    @write.undo
    def unwrite(result: str) -> None:
        undoing.set()
        go_on.wait(30)

    @tool(requires_approval=True)
    def send() -> str:
        return "sent"

    model = ScriptedModel([Call("write", {"name": "a"})], [Call("send", {})])
    settings = Settings(max_wait=0.05)
    with serving(Agent(model, tools=[write, send]), settings=settings) as served, served.client(timeout=10) as client:
        run_id = start(client)
        read_events(client, run_id)
        try:
            assert client.post(f"/runs/{run_id}/cancel", json={"undo": True}).json()["accepted"]
            assert undoing.wait(10)
        finally:
            go_on.set()
        assert client.get(f"/runs/{run_id}").json()["run"]["interrupts"] == []
