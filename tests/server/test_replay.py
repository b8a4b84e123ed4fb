"""Events that are no longer in memory come from the journal, exactly as they were told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.events import RunEnded
from quiesce.models.scripted import Call, Pause, Say, ScriptedModel, Stall, Used
from quiesce.server import Settings, create_app
from quiesce.sessions.stores.resolve import resolve_store

from .support import frames, read_events, serving, start

pytestmark = [pytest.mark.promise("P3", "P9"), pytest.mark.timeout(60)]

SMALL = Settings(log_bytes=4000)


@tool
async def look(what: str) -> str:
    """Look."""
    return f"{what}: fine"


def chatty(*, stall: bool = False) -> Agent:
    """Says a lot, in small pieces, with a tool in the middle."""
    last = [Say("and more " * 300, chunk=4), Used(input=9, output=900), *([Stall()] if stall else [])]
    return Agent(ScriptedModel([Say("word " * 300, chunk=3), Call("look", {"what": "oven"})], last), tools=[look])


def plain(events: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """Without the one figure that the store has later than the readers: how long the end took."""
    for _, kind, event in events:
        if kind == "run_ended":
            event["receipt"]["latency"] = None
    return events


def test_a_reader_that_comes_back_late_gets_all_from_the_journal(tmp_path: Path):
    app = create_app(chatty(), settings=SMALL, store=tmp_path / "sessions.db")
    with serving(app=app) as served, served.client() as client:
        run_id = start(client)
        live = plain(read_events(client, run_id))
        assert [number for number, _, _ in live] == list(range(1, len(live) + 1))
        log = served.app.services.runs.get("local", run_id).log
        assert log.size < 8000  # most of them are no longer in memory
        for seen in (0, 1, 17, len(live) // 2, len(live) - 3, len(live)):
            assert plain(read_events(client, run_id, **{"Last-Event-ID": str(seen)})) == live[seen:]


def test_a_slow_reader_of_a_run_that_goes_on_misses_nothing(tmp_path: Path):
    app = create_app(chatty(stall=True), settings=SMALL, store=tmp_path / "sessions.db")
    said = "word " * 300 + "and more " * 300
    with serving(app=app) as served, served.client() as client:
        run_id = start(client)
        live = read_until(client, run_id, 0, said)  # the run goes on, and says no more
        assert served.do(lambda: served.app.services.runs.get("local", run_id).log.size) < 8000
        assert read_until(client, run_id, 5, said) == live[5:]
        client.post(f"/runs/{run_id}/cancel?wait=20", json={})
        assert read_events(client, run_id)[: len(live)] == live


def read_until(client: httpx2.Client, run_id: str, after: int, said: str) -> list[tuple[int, str, Any]]:
    """What a reader is told up to the last of these words."""
    seen: list[tuple[int, str, Any]] = []
    told = ""
    with client.stream("GET", f"/runs/{run_id}/events?after={after}") as response:
        for number, kind, event in frames(response.iter_lines()):
            seen.append((number, kind, event))
            told += event["text"] if kind == "text" else ""
            if said.endswith(told) and len(told) > len(said) - 40:
                return seen
    raise AssertionError("the run ended")


def test_a_new_process_tells_it_in_the_same_way(tmp_path: Path):
    path = tmp_path / "sessions.db"
    with serving(app=create_app(chatty(), settings=SMALL, store=path)) as served, served.client() as client:
        run_id = start(client)
        live = plain(read_events(client, run_id))
    with serving(app=create_app(chatty(), settings=SMALL, store=path)) as served, served.client() as client:
        for seen in (0, 1, 17, len(live) - 1, len(live)):
            assert plain(read_events(client, run_id, **{"Last-Event-ID": str(seen)})) == live[seen:]
        assert client.get(f"/runs/{run_id}").json()["run"]["last_event"] == len(live)


@pytest.mark.promise("P4")
def test_what_the_store_has_lost_is_said(tmp_path: Path):
    app = create_app(chatty(), settings=SMALL, store=tmp_path / "sessions.db")
    with serving(app=app) as served, served.client() as client:
        run_id = start(client, session="mine")
        live = read_events(client, run_id)
        resolve_store(tmp_path / "sessions.db").delete("local/mine").result()
        number, kind, event = read_events(client, run_id)[0]
        assert (kind, event["first"], event["last"]) == ("gap", 1, number)
        assert 1 < number < len(live)


def test_a_run_that_waits_for_its_first_word_can_be_read_at_once(tmp_path: Path):
    agent = Agent(ScriptedModel([Pause(0.2), Say("at last")]))
    app = create_app(agent, settings=SMALL, store=tmp_path / "sessions.db")
    with serving(app=app) as served, served.client() as client:
        events = read_events(client, start(client))
        assert events[-1][1] == str(RunEnded.__struct_config__.tag)
