"""Two replicas of the server, and a worker: any run is read and stopped from either replica."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.fleet import Worker, WorkerSettings
from quiesce.fleet.database import FleetDatabase
from quiesce.fleet.taking import ServedAgent, take
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.server import Settings, create_app, fleet_routes
from quiesce.sessions.stores.postgres import PostgresStore

from ..server.support import Served, endless, frames, read_events, serving, start, talker, wait_for_text

pytestmark = pytest.mark.promise("P1", "P8")


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def payer() -> Agent:
    return Agent(ScriptedModel([Call("pay", {"amount": 3}, id="call_1")], "It is paid."), tools=[pay], name="payer")


@contextmanager
def working(url: str, *agents: Agent) -> Iterator[None]:
    """A worker in a thread of its own."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def main() -> None:
        worker = Worker(*agents, store=url, settings=WorkerSettings(lease=2.0, drain=1.0))
        worker.store = PostgresStore(url)  # type: ignore[misc]
        await worker.run(stop)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run, name="worker under test")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def replicas(url: str, *agents: Agent) -> Iterator[tuple[Served, Served]]:
    def app() -> Any:
        return create_app(*agents, settings=Settings(fleet=True), store=url)

    with serving(app=app()) as one, serving(app=app()) as other:
        yield one, other


def test_a_run_is_read_and_stopped_from_the_other_replica(fleet_url: str) -> None:
    url = fleet_url
    agent = endless()
    with replicas(url, agent) as (one, other), one.client() as here, other.client() as there:
        waiting = start(here, "Later")
        assert here.get(f"/runs/{waiting}").json()["run"]["state"] == "queued"
        assert here.get("/healthz").json()["fleet"]
        answer = there.post(f"/runs/{waiting}/cancel").json()
        assert (answer["accepted"], answer["delivered"], answer["receipt"]["stop_reason"]) == (True, True, "cancelled")
        with working(url, agent):
            run_id = start(here, "Hello", session="s")
            wait_for_text(there, run_id)
            assert there.post("/runs", json={"prompt": "More", "session": "s"}).status_code == 409
            assert [each["action"] for each in there.get("/audit").json()["entries"]] == ["start", "stop", "start"]
            page = there.get("/runs", params={"limit": 1}).json()
            older = here.get("/runs", params={"limit": 1, "before": page["next"]}).json()
            assert [page["runs"][0]["id"], older["runs"][0]["id"]] == [run_id, waiting]
            listed = there.get("/runs", params={"state": "running"}).json()["runs"]
            assert [(run["id"], run["phase"]) for run in listed] == [(run_id, "streaming")]
            with there.stream("GET", "/events") as response:
                kinds = frames_of(response)
                assert next(kinds)[0] == "list"
                answer = there.post(f"/runs/{run_id}/cancel", params={"wait": 30}, json={"reason": "enough"}).json()
                assert next(run for kind, run in kinds if kind == "run" and run["run"]["state"] == "ended")
            assert (answer["accepted"], answer["receipt"]["cause"]["reason"]) == (True, "enough")
            events = read_events(here, run_id)
            assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
            assert events[-1][1] == "run_ended"
            assert read_events(there, run_id, **{"Last-Event-ID": "3"}) == events[3:]
            assert read_events(there, run_id, **{"Last-Event-ID": str(len(events))}) == []
            assert [each["name"] for each in there.get("/sessions").json()["sessions"]][:1] == ["s"]
            assert there.get("/usage").json()["total"]["calls"] == 1
            assert there.get("/usage").json()["keys"] == ["local"]
            assert there.get("/usage/keys").json()["keys"][0]["usage"]["calls"] == 1
            assert there.delete("/sessions/s").status_code == 204
            assert here.get(f"/runs/{run_id}").status_code == 404


def frames_of(response: httpx2.Response) -> Iterator[tuple[str, Any]]:
    lines = (line if not line.startswith("id: ") else "id: 0" for line in response.iter_lines())
    return ((kind, data) for _, kind, data in frames(lines))


rooms: list[str] = []


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


@tool
async def book(room: str) -> str:
    """Book a room."""
    rooms.append(room)
    return f"booking of {room}"


@book.undo
async def unbook(room: str) -> None:
    rooms.remove(room)


def booker() -> Agent:
    script = ScriptedModel(
        [Call("wait_for_ever", id="call_1")],
        [Call("book", {"room": "blue"}, id="call_2")],
        [Say("Booked. "), Stall()],
        [Say("As you like. "), Stall()],
    )
    return Agent(script, tools=[wait_for_ever, book], name="booker")


def text_after(client: httpx2.Client, run_id: str, after: int) -> int:
    """Read until the run says something after this event; the number of that event."""
    with client.stream("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": str(after)}) as response:
        return next(number for number, kind, _ in frames(response.iter_lines()) if kind == "text")


def test_a_tool_is_stopped_a_run_steered_escalated_and_undone_from_the_other_replica(fleet_url: str) -> None:
    agent = booker()
    with (
        replicas(fleet_url, agent) as (one, other),
        one.client() as here,
        other.client() as there,
        working(fleet_url, agent),
    ):
        run_id = start(here)
        with there.stream("GET", f"/runs/{run_id}/events") as response:
            assert next(True for _, kind, _ in frames(response.iter_lines()) if kind == "tool_started")
        accepted = {"accepted": True, "delivered": True}
        assert there.post(f"/runs/{run_id}/tools/call_1/cancel", json={}).json() == accepted
        assert not there.post(f"/runs/{run_id}/tools/call_9/cancel", json={}).json()["accepted"]
        booked = wait_for_text(there, run_id)
        assert rooms == ["blue"]
        assert there.post(f"/runs/{run_id}/steer", json={"text": "Say something else."}).json() == accepted
        text_after(here, run_id, booked)
        patient = there.post(f"/runs/{run_id}/cancel", json={"mode": "after_turn", "reason": "patience"}).json()
        assert (patient["accepted"], patient["receipt"]) == (True, None)
        now = there.post(f"/runs/{run_id}/cancel", params={"wait": 30}, json={"mode": "now", "undo": True}).json()
        receipt = now["receipt"]
        assert (receipt["cause"]["reason"], receipt["mode"]) == ("patience", "now")
        assert [line["outcome"] for line in receipt["undo"]] == ["undone"]
        assert rooms == []


def test_a_command_that_no_worker_has_yet_is_not_said_to_be_too_late(
    fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_routes, "_DELIVERY_WAIT", 0.1)

    async def take_and_do_nothing() -> None:
        database = FleetDatabase(fleet_url)
        async with database.transaction() as db:
            await take(db, database.engine, {"booker": ServedAgent()}, 1, uuid.uuid4(), lease=60.0)
        await database.close()

    with replicas(fleet_url, booker()) as (one, other), one.client() as here, other.client() as there:
        run_id = start(here)
        asyncio.run(take_and_do_nothing())
        for path, body in (("steer", {"text": "Say something else."}), ("tools/call_1/cancel", {})):
            answer = there.post(f"/runs/{run_id}/{path}", json=body)
            assert (answer.status_code, answer.json()) == (202, {"accepted": True, "delivered": False})


def test_an_approval_and_an_idempotency_key_hold_at_every_replica(fleet_url: str) -> None:
    url = fleet_url
    agent = payer()
    with (
        replicas(url, agent) as (one, other),
        one.client() as here,
        other.client() as there,
        working(url, agent),
    ):
        body, key = {"prompt": "Pay", "session": "s"}, {"Idempotency-Key": "k"}
        first = here.post("/runs", json=body, headers=key)
        again = there.post("/runs", json=body, headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        run_id = first.json()["run"]["id"]
        assert again.json()["run"]["id"] == run_id
        assert there.post("/runs", json={"prompt": "Other"}, headers=key).status_code == 422
        read_events(there, run_id)
        shown = there.get(f"/runs/{run_id}").json()["run"]
        (asked,) = shown["interrupts"]
        wrong = there.post(f"/runs/{run_id}/resume", json={"answers": [{"id": "nothing", "answer": True}]})
        assert wrong.status_code == 409
        answer = {"answers": [{"id": asked["id"], "answer": {"type": "approve"}}]}
        resumed = there.post(f"/runs/{run_id}/resume", json=answer)
        assert resumed.status_code == 201, resumed.text
        assert read_events(here, resumed.json()["run"]["id"])[-1][2]["stop_reason"] == "end_turn"
        assert here.post(f"/runs/{run_id}/steer", json={"text": "Too late"}).status_code == 409


def test_the_names_of_the_servers_own_records_are_no_sessions(fleet_url: str) -> None:
    with replicas(fleet_url, talker()) as (one, _), one.client() as client:
        start(client, session="s")
        assert len(client.get("/audit").json()["entries"]) == 1
        for name in (".audit", ".approvals", ".usage"):
            assert client.get(f"/sessions/{name}").status_code == 404
            assert client.delete(f"/sessions/{name}").status_code == 404
        assert [each["action"] for each in client.get("/audit").json()["entries"]] == ["start"]
        assert client.post("/runs", json={"prompt": "Hello", "session": "s\n"}).status_code == 422


def test_a_null_character_in_an_address_is_refused(fleet_url: str) -> None:
    """Postgres has no texts with one."""
    with replicas(fleet_url, talker()) as (one, _), one.client() as client:
        run_id = start(client, "Null \0 character")
        for path in ("/runs/%00", "/runs/%00/events", "/sessions/%00"):
            assert client.get(path).status_code == 404, path
        for path in ("/runs?session=%00", "/runs?agent=%00", "/usage/keys?key=%00"):
            assert client.get(path).status_code == 422, path
        assert client.delete("/sessions/%00").status_code == 404
        assert client.post(f"/runs/{run_id}/cancel", json={"reason": "\0"}).status_code == 200
