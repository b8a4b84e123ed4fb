"""What clients learn when the store fails: what happened and what to do, and nothing of where the store is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Session
from quiesce.errors import StoreUnavailable
from quiesce.events import RunEnded, StoreFailed
from quiesce.models.scripted import ScriptedModel
from quiesce.server import create_app
from quiesce.sessions.journal import journal
from quiesce.sessions.stores import sqlite_file
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.sqlite import SQLiteStore

from .support import read_events, serving, start

pytestmark = pytest.mark.promise("P8")

AWAY = "postgresql://maryuser:hunter2@127.0.0.1:1/marydb"
PLACES = ("maryuser", "marydb", "hunter2", "127.0.0.1", "Errno", "secretfolder", "s.db", "sqlite", "postgresql")


class Away(SQLiteStore):
    """A store that is there when the server starts, and then fails as a Postgres does that cannot be reached."""

    def acquire(self, *args: Any, **options: Any) -> Future[Any]:
        away = PostgresStore(AWAY)
        try:
            error = away.load("s").exception()
        finally:
            away.close().result()
        assert isinstance(error, StoreUnavailable)
        assert "maryuser" in str(error)
        failed: Future[Any] = Future()
        failed.set_exception(error)
        return failed


class Locking(ScriptedModel):
    """Locks a file for good as soon as it is asked."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(then="One two three.")
        self._path = path
        self._monkeypatch = monkeypatch
        self.unlock: Callable[[], None] = lambda: None

    def stream(self, request: Any) -> Any:
        other = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        self.unlock = other.close
        self._monkeypatch.setattr(journal, "STORE_TIMEOUT", 0.05)  # only now: the session is open
        return super().stream(request)


@pytest.fixture
def locking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sqlite_file, "_LOCK_TIMEOUT", 0.01)
    (tmp_path / "secretfolder").mkdir()
    return Locking(tmp_path / "secretfolder" / "s.db", monkeypatch)


def all_that_a_client_can_read(client: Any, run_id: str) -> str:
    paths = (f"/runs/{run_id}", f"/runs/{run_id}/receipt", "/runs", "/sessions", "/sessions/mine")
    return "".join([*(client.get(path).text for path in paths), str(read_events(client, run_id))])


def places_in(text: str) -> list[str]:
    return [place for place in PLACES if place in text]


def test_a_file_that_is_locked(locking: Locking, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(Agent(locking), store=locking._path)
    with serving(app=app) as served, served.client() as client:
        run_id = start(client, session="mine")
        served.at_rest(run_id)
        locking.unlock()
        run = client.get(f"/runs/{run_id}").json()["run"]
        assert run["stop_reason"] == "error"
        assert "Check that the database is up" in run["error"]
        assert places_in(all_that_a_client_can_read(client, run_id)) == []
    assert f"{locking._path}: database is locked" in caplog.text


def test_a_database_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STORE_TIMEOUT", 1.0)  # within which one attempt has failed, on a slow machine too
    app = create_app(Agent(ScriptedModel(then="Hello.")), store=Away(tmp_path / "x.db"))
    with serving(app=app) as served, served.client() as client:
        run_id = start(client, session="mine")
        served.at_rest(run_id)
        assert "cannot be reached" in client.get(f"/runs/{run_id}").json()["run"]["error"]
        assert places_in(all_that_a_client_can_read(client, run_id)) == []
    assert "maryuser@127.0.0.1:1/marydb" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_is_stored_and_sent_of_a_run_that_goes_on_in_memory(
    locking: Locking, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        agent = Agent(locking, session=Session("mine", locking._path, on_store_failure="continue"))
        told = [event async for event in agent.stream_async("Hello") if isinstance(event, StoreFailed | RunEnded)]
        assert isinstance(told[0], StoreFailed)
        return f"{told}"

    assert places_in(asyncio.run(main())) == []
    locking.unlock()
    assert f"{locking._path}: database is locked" in caplog.text
