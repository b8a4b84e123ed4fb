"""Real failures of real stores: a full disk, a file that may not be written, a database that goes away."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Session, tool
from quiesce.conversation.validity import faults
from quiesce.errors import StoreError, StoreReadOnly, StoreUnavailable
from quiesce.events import RunEnded, TextDelta
from quiesce.sessions.journal import journal
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.postgres_database import PostgresDatabase
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, Say, ScriptedModel

from .conftest import Postgres
from .executioner import Executioner

pytestmark = pytest.mark.promise("P9")
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may enter."""
    with tempfile.TemporaryDirectory(prefix="quiesce-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("failure", ["stop", "continue"])
def test_a_disk_that_is_full(folder: Path, failure: str) -> None:
    path = folder / "sessions.db"
    executioner = Executioner(str(path), SQLiteStore(path), folder)
    try:
        executioner.kill("s")  # a prompt that is answered
        outcomes = []
        for room in (0, 3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 10_000_000):
            # No file may grow by more than this: not the database, nor its log.
            largest = max(file.stat().st_size for file in folder.iterdir())
            executioner.kill("s", file_limit=largest + room, more=4_000, failure=failure)
            last = executioner.lines("s", "acks")[-1]
            outcomes.append(last[0] if last[0] != "failed" else last[2])
        if failure == "stop":
            assert set(outcomes) == {"StoreFull", "ended"}, outcomes
        else:
            assert "unsaved" in outcomes, outcomes
            assert set(outcomes) <= {"unsaved", "StoreFull", "ended"}, outcomes
    finally:
        executioner.close()


def test_a_file_that_may_not_be_written(folder: Path) -> None:
    path = folder / "sessions.db"
    executioner = Executioner(str(path), SQLiteStore(path), folder)
    try:
        executioner.kill("s")
        path.chmod(0o444)
        folder.chmod(0o555)
        if os.getuid() == 0:
            executioner.kill("s", user=NOBODY)
            assert executioner.lines("s", "acks")[-1][2] == "StoreReadOnly"
        else:
            store = SQLiteStore(path)
            with pytest.raises(StoreReadOnly):
                Agent(ScriptedModel(then="x"), session=Session("s", store))("Go")
            store.close().result()
        folder.chmod(0o755)
        path.chmod(0o644)
        executioner.kill("s")
        assert executioner.lines("s", "acks")[-1][0] == "ended"
    finally:
        executioner.close()


def test_a_place_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SQLiteStore(tmp_path / "file" / "sessions.db")

    async def main() -> None:
        with pytest.raises(StoreError) as failure:
            await Agent(ScriptedModel(then="x"), session=Session("s", store)).invoke_async("Go")
        assert failure.value.result is not None
        assert failure.value.result.receipt.saved is False

    asyncio.run(main())
    store.close().result()


# --- A database that goes away --------------------------------------------------------------------------------------


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(0.05)
    return "seen"


def talk() -> ScriptedModel:
    return ScriptedModel([Say("I begin. " * 20, pause=0.005), Call("look")], Say("I end. " * 20, pause=0.005))


def brief() -> ScriptedModel:
    return ScriptedModel([Say("I begin. "), Call("look")], "I end.")


async def meanwhile(agent: Agent, disturb: Any) -> list[Any]:
    """Read a run; when the first words are there, have a thread disturb it."""
    events: list[Any] = []
    disturbing: asyncio.Future[None] | None = None
    try:
        async for event in agent.stream_async("Go"):
            events.append(event)
            if disturbing is None and isinstance(event, TextDelta):
                disturbing = asyncio.ensure_future(asyncio.to_thread(disturb))
    finally:
        if disturbing is not None:
            await disturbing
    return events


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_database_that_is_restarted_is_waited_for(postgres: Postgres, how: str) -> None:
    url = postgres.new_database()

    def restart() -> None:
        postgres.stop(how)
        postgres.start()

    async def main() -> None:
        store = PostgresStore(url)
        agent = Agent(talk(), tools=[look], session=Session("s", store))
        events = await meanwhile(agent, restart)
        assert isinstance(events[-1], RunEnded)
        assert events[-1].receipt.saved, events[-1].receipt.unsaved
        assert await Session("s", store).load() == agent.messages
        store.close().result()

    asyncio.run(main())


def test_a_database_that_is_away_when_a_run_begins_is_waited_for(postgres: Postgres) -> None:
    url = postgres.new_database()

    async def main() -> None:
        store = PostgresStore(url)
        await Agent(talk(), tools=[look], session=Session("s", store)).invoke_async("First")
        postgres.stop()
        run = Agent(ScriptedModel("Here."), session=Session("s", store)).start("Anybody there?")
        await asyncio.to_thread(postgres.start)
        assert (await run).receipt.saved
        store.close().result()

    asyncio.run(main())


class Dropped(PostgresDatabase):
    """Loses its connection, for real, at chosen transactions: before they begin, or when they are about to commit."""

    def __init__(self, url: str, *, at: frozenset[int], inside: bool) -> None:
        super().__init__(url)
        self._url, self._at, self._inside = url, at, inside
        self.transactions = 0
        self.drops = 0

    async def _attempt(self, access: Any, operation: Any) -> Any:
        self.transactions += 1
        now = self.transactions in self._at and self._connection is not None

        def cut_short() -> Any:
            done = yield from operation
            dropping = threading.Thread(target=lambda: asyncio.run(self._drop()))
            dropping.start()
            dropping.join()
            return done

        if now and not self._inside:
            await self._drop()
        return await super()._attempt(access, cut_short() if now and self._inside else operation)

    async def _drop(self) -> None:
        import asyncpg

        self.drops += 1
        other = await asyncpg.connect(self._url)
        # Waits until that process is gone.
        assert await other.fetchval("SELECT pg_terminate_backend($1, 20000)", self._connection.get_server_pid())
        await other.close()


@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_a_connection_that_is_dropped_at_every_transaction(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    url = postgres.new_database()

    async def main(name: str, at: frozenset[int]) -> Dropped:
        database = Dropped(url, at=at, inside=inside)
        monkeypatch.setattr("quiesce.sessions.stores.postgres.PostgresDatabase", lambda _: database)
        store = PostgresStore(url)
        agent = Agent(brief(), tools=[look], session=name, store=store)
        result = await agent.invoke_async("Go")
        assert result.receipt.saved, result.receipt.unsaved
        assert result.text == "I end."
        assert await Session(name, store).load() == agent.messages
        assert [len(agent.messages), faults(agent.messages)] == [4, ()]
        await asyncio.wrap_future(store.close())
        return database

    whole = asyncio.run(main("whole", frozenset()))
    assert whole.drops == 0
    # The first has no connection yet that could be dropped; and how many there are depends a little on the clock.
    once = [asyncio.run(main(f"at {number}", frozenset({number}))) for number in range(2, whole.transactions + 1)]
    assert sum(database.drops for database in once) > 3
    # Every second one, so that what is tried again has a chance: it is given up when nothing helps for ten seconds.
    assert asyncio.run(main("again and again", frozenset(range(2, 200, 2)))).drops > 3


@pytest.mark.parametrize("failure", ["stop", "continue"])
def test_a_database_that_stays_away(postgres: Postgres, failure: Any) -> None:
    store = PostgresStore(postgres.new_database())
    patch = pytest.MonkeyPatch()
    stopping: list[asyncio.Future[None]] = []

    @tool
    async def look() -> str:
        """Look. When this returns, the database is gone."""
        await asyncio.wrap_future(store.sessions())  # what was written before, with more time, has arrived
        stopping.append(asyncio.ensure_future(asyncio.to_thread(postgres.stop)))
        # Only now: a database that is there may be slow, on a busy machine.
        patch.setattr(journal, "STORE_TIMEOUT", 0.2)
        await asyncio.shield(stopping[0])
        return "seen"

    async def main() -> None:
        agent = Agent(talk(), tools=[look], session=Session("s", store, on_store_failure=failure))
        try:
            await _check_a_run_without_a_database(agent, failure)
        finally:
            patch.undo()
            await stopping[0]
            postgres.start()
        agent.config.model._answers = iter(["Better."])  # type: ignore[attr-defined]
        again = await agent.invoke_async("Again")
        assert again.receipt.saved
        assert faults(again.messages) == ()
        assert await Session("s", store).load() == again.messages
        store.close().result()

    asyncio.run(main())


async def _check_a_run_without_a_database(agent: Agent, failure: str) -> None:
    if failure == "stop":
        with pytest.raises(StoreUnavailable) as raised:
            await agent.invoke_async("Go")
        assert raised.value.result is not None
        result = raised.value.result
        assert result.stop_reason == "error"
        assert result.receipt.saved is False
        assert faults(result.messages) == ()
    else:
        events = [event async for event in agent.stream_async("Go")]
        assert events[-1].stop_reason == "end_turn"
        assert events[-1].receipt.saved is False
        words = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert words == "I begin. " * 20 + "I end. " * 20
