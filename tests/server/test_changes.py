"""`GET /events`: the list of runs as it changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.server import Settings

from .support import Served, endless, serving, start, talker, two_keys

pytestmark = [pytest.mark.promise("P4", "P8"), pytest.mark.timeout(60)]


class Watcher:
    """Reads one stream of changes, a frame at a time."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.place = ""

    def next(self) -> dict[str, Any] | None:
        """The next change; None at the end of the stream."""
        frame: dict[str, str] = {}
        for line in self._lines:
            name, colon, value = line.partition(": ")
            if colon:
                frame[name] = value
            elif not line and "data" in frame:
                self.place = frame["id"]
                change = json.loads(frame["data"])
                assert change["type"] == frame["event"]
                return change
        return None

    def until(self, wanted: Any) -> dict[str, Any]:
        """The first change for which `wanted` holds."""
        while True:
            change = self.next()
            assert change is not None
            if wanted(change):
                return change


class Watching:
    """A connection to `GET /events`."""

    def __init__(self, client: httpx2.Client, **headers: str) -> None:
        self._context = client.stream("GET", "/events", headers=headers)

    def __enter__(self) -> Watcher:
        response = self._context.__enter__()
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return Watcher(response.iter_lines())

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


def state(run_id: str, wanted: str) -> Any:
    return lambda change: change["type"] == "run" and change["run"]["id"] == run_id and change["run"]["state"] == wanted


def run(main: Any, *agents: Agent, **options: Any) -> None:
    with serving(*agents, **options) as served:
        main(served)


def begin(client: httpx2.Client, prompt: str = "go") -> str:
    return (client.post("/runs", json={"prompt": prompt})).json()["run"]["id"]


def test_a_start_a_stop_and_an_end_are_told():
    def main(served: Served) -> None:
        with served.client() as client, Watching(client) as watcher:
            assert watcher.next() == {"type": "list", "runs": []}
            run_id = begin(client)
            spoke = watcher.until(lambda change: change["run"]["text_tail"])
            assert (spoke["run"]["id"], spoke["run"]["state"]) == (run_id, "running")
            client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
            ended = watcher.until(state(run_id, "ended"))
            assert ended["run"]["stop_reason"] == "cancelled"
            assert ended["run"]["cause"]["reason"] == "enough"
            assert (client.delete(f"/runs/{run_id}")).status_code == 204
            assert watcher.until(lambda change: change["type"] == "gone") == {"type": "gone", "id": run_id}

    run(main, endless())


@pytest.mark.promise("P1")
def test_stopping_is_told_while_a_tool_takes_its_time():
    @tool(grace=30)
    async def slow() -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)
            raise
        return ""

    def main(served: Served) -> None:
        with served.client() as client, Watching(client) as watcher:
            run_id = begin(client)
            watcher.until(lambda change: change["type"] == "run" and change["run"]["phase"] == "acting")
            client.post(f"/runs/{run_id}/cancel", json={})
            stopping = watcher.until(state(run_id, "stopping"))
            assert stopping["run"]["waiting_for"] == ["slow"]
            client.post(f"/runs/{run_id}/cancel", json={"mode": "kill"})
            watcher.until(state(run_id, "ended"))

    run(main, Agent(ScriptedModel([Call("slow")]), tools=[slow]))


@pytest.mark.promise("P3")
def test_a_reader_that_comes_back_gets_what_changed_meanwhile_and_no_more():
    def main(served: Served) -> None:
        with served.client() as client:
            old, stopped, deleted = [begin(client) for _ in range(3)]
            client.post(f"/runs/{deleted}/cancel?wait=20", json={})
            with Watching(client) as watcher:
                listed = watcher.next()
                assert listed is not None
                assert [each["id"] for each in listed["runs"]] == [deleted, stopped, old]
                place = watcher.place
            client.post(f"/runs/{stopped}/cancel?wait=20", json={})
            client.delete(f"/runs/{deleted}")
            new = begin(client)
            with Watching(client, **{"Last-Event-ID": place}) as watcher:
                seen = {}
                while len(seen) < 3:
                    change = watcher.next()
                    assert change is not None
                    seen[change.get("id") or change["run"]["id"]] = change["type"]
            assert seen == {stopped: "run", deleted: "gone", new: "run"}

    run(main, Agent(ScriptedModel(*[[Say("word"), Stall()]] * 4)))


@pytest.mark.parametrize("place", ["0badf00d.7", "7", "x.y", "." * 300, "0badf00d." + "9" * 40])
def test_a_place_of_another_process_gets_the_whole_list(place: str):
    def main(served: Served) -> None:
        with served.client() as client:
            run_id = begin(client)
            with Watching(client, **{"Last-Event-ID": place}) as watcher:
                listed = watcher.next()
                assert listed is not None
                assert [each["id"] for each in listed["runs"]] == [run_id]

    run(main, talker())


def test_one_key_is_told_nothing_of_anothers_runs():
    ann, bob, keys = two_keys()

    def main(served: Served) -> None:
        with served.client(ann) as hers, served.client(bob) as his:
            with Watching(hers) as watcher:
                assert watcher.next() == {"type": "list", "runs": []}
                begin(his, "a secret")
                mine = begin(hers)
                assert (watcher.until(lambda _: True))["run"]["id"] == mine
            place = watcher.place
            with Watching(his, **{"Last-Event-ID": place}) as watcher:  # her place is none of his
                listed = watcher.next()
                assert listed is not None
                assert [each["prompt"] for each in listed["runs"]] == ["a secret"]
        with served.client() as nobody:
            assert (nobody.get("/events")).status_code == 401

    run(main, talker(), keys=keys)


def test_streams_of_changes_count_and_leave_nothing():
    def main(served: Served) -> None:
        with served.client() as client:
            with Watching(client) as one, Watching(client) as two:
                one.next()
                two.next()
                assert (client.get("/events")).status_code == 429
            while served.do(lambda: served.app.services.quotas.open_streams):
                served.pause(0.01)
            with Watching(client) as again:
                again.next()

    run(main, talker(), settings=Settings(max_streams_per_key=2))


@pytest.mark.promise("P5")
def test_a_drain_ends_the_stream():
    def main(served: Served) -> None:
        with served.client() as client, Watching(client) as watcher:
            watcher.next()
            run_id = begin(client)
            watcher.until(state(run_id, "running"))
            served.do(served.server.drain)
            ended = watcher.until(state(run_id, "ended"))
            assert ended["run"]["cause"]["source"] == "shutdown"
            assert watcher.next() is None

    run(main, endless(), settings=Settings(drain=0.5))


@pytest.mark.promise("P5")
def test_a_reader_that_connects_during_a_drain_ends_no_other_stream():
    @tool(grace=30)
    async def slow() -> str:
        await asyncio.sleep(600)
        return ""

    def main(served: Served) -> None:
        with served.client() as client, Watching(client) as watcher:
            watcher.next()
            run_id = begin(client)
            watcher.until(lambda change: change["type"] == "run" and change["run"]["phase"] == "acting")
            served.do(served.app.drain.begin)
            with Watching(client) as second:
                listed = second.next()
                assert listed is not None
                assert [each["id"] for each in listed["runs"]] == [run_id]
                assert second.next() is None
            client.post(f"/runs/{run_id}/cancel", json={})
            watcher.until(state(run_id, "ended"))

    run(main, Agent(ScriptedModel([Call("slow")]), tools=[slow]), settings=Settings(drain=60))


def test_words_are_told_at_a_pace_and_an_end_is_not_held_up_by_it():
    def main(served: Served) -> None:
        with served.client() as client, Watching(client) as watcher:
            watcher.next()
            run_id = begin(client)
            told = 0
            change = watcher.next()
            while change is not None and change["run"]["state"] != "ended":
                told += 1
                change = watcher.next()
            detail = (client.get(f"/runs/{run_id}")).json()
            assert detail["run"]["last_event"] > 500
            assert told < 100  # far fewer than its events
            assert change is not None
            assert change["run"]["text_tail"].endswith("word ")

    run(main, Agent(ScriptedModel([Say("word " * 500, chunk=5)])))


def test_the_names_of_what_can_be_undone_are_in_the_view():
    @tool
    async def write() -> str:
        return "written"

    @write.undo
    async def unwrite() -> None:
        return None

    with serving(Agent(ScriptedModel([Call("write")], "done"), tools=[write])) as served, served.client() as client:
        run_id = start(client)
        served.at_rest(run_id)
        assert client.get(f"/runs/{run_id}").json()["run"]["undoable"] == ["write"]
        assert client.post(f"/runs/{run_id}/undo").status_code == 200
        assert client.get(f"/runs/{run_id}").json()["run"]["undoable"] == []
