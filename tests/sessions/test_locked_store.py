"""A real store that somebody else has locked: a SQLite file by BEGIN EXCLUSIVE, a table of Postgres by LOCK TABLE."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Session
from quiesce.conversation.validity import faults
from quiesce.errors import StoreUnavailable
from quiesce.events import Event, RunEnded, StoreFailed, TextDelta
from quiesce.messages import AssistantMessage
from quiesce.models.base import ModelRequest
from quiesce.phases import Phase
from quiesce.run import settle
from quiesce.sessions.journal import journal
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores import sqlite_file
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Say, ScriptedModel, Stall

from .conftest import Postgres

pytestmark = pytest.mark.promise("P9")
WORDS = "One two three four five six seven eight nine ten."


class Gated(ScriptedModel):
    """Stops in its first answer after the first words, until `gate` is set; `said` is set when all words are out."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.gate = asyncio.Event()
        self.said = asyncio.Event()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Any]]:
        async with super().stream(request) as deltas:
            yield self._gated(deltas)

    async def _gated(self, deltas: AsyncIterator[Any]) -> AsyncIterator[Any]:
        text = ""
        async for delta in deltas:
            yield delta
            if isinstance(delta, TextDelta):
                text += delta.text
                await self.gate.wait()
            if text == WORDS:
                self.said.set()


class Place:
    """Where a store is, and a lock on it that lets others read."""

    def __init__(self, make: Callable[[], SessionStore], url: str) -> None:
        self.make = make
        self._url = url
        self._connection: Any = None
        self.shorten: Callable[[], None] = lambda: None
        self.restore: Callable[[], None] = lambda: None

    async def lock(self) -> None:
        if self._url.startswith("postgresql"):
            import asyncpg

            self._connection = await asyncpg.connect(self._url)
            await self._connection.execute("BEGIN; LOCK TABLE quiesce_sessions IN EXCLUSIVE MODE")
        else:
            self._connection = sqlite3.connect(self._url, isolation_level=None)
            self._connection.execute("BEGIN EXCLUSIVE")
        self.shorten()

    async def unlock(self) -> None:
        self.restore()
        closing = self._connection.close()
        if closing is not None:
            await closing


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: list[SessionStore] = []
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    else:
        url = str(tmp_path / "sessions.db")

    def make() -> SessionStore:
        made.append(SQLiteStore(url) if request.param == "sqlite" else PostgresStore(url))
        return made[-1]

    yield Place(make, url)
    for store in made:
        store.close().result()


@pytest.fixture
def quick(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Less time to wait for while the store is locked: one that is not may be slow, on a busy machine."""
    monkeypatch.setattr(sqlite_file, "_LOCK_TIMEOUT", 0.5)  # of each connection, from its beginning
    with pytest.MonkeyPatch.context() as while_locked:

        def shorten() -> None:
            while_locked.setattr(settle, "SAVE_GRACE", 0.2)
            while_locked.setattr(journal, "STORE_TIMEOUT", 1.0)

        place.shorten, place.restore = shorten, while_locked.undo
        yield


async def landed(store: SessionStore) -> None:
    """Everything that was asked of a store is done, and whoever waits for it has heard."""
    await asyncio.wrap_future(store.sessions())
    await asyncio.sleep(0.01)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def read(run: Any, model: Gated, lock: Callable[[], Awaitable[None]]) -> list[Event]:
    """Read a run to its end; lock its store after the first words, and let the model go on then."""
    seen: list[Event] = []
    async for event in run:
        seen.append(event)
        if not model.gate.is_set() and isinstance(event, TextDelta):
            await lock()
            model.gate.set()
    return seen


async def check_readable(place: Place, seen: str, name: str = "s") -> tuple[Any, ...]:
    """In another process, so to speak: all that was seen is there, it is valid, and it goes on."""
    store = place.make()
    agent = Agent(ScriptedModel("Another."), session=name, store=store)
    before = await Session(name, store).load()
    result = await agent.invoke_async("And you?")
    assert result.receipt.saved
    assert result.messages[: len(before)] == before
    assert faults(result.messages) == ()
    assert seen in "".join(message.text for message in result.messages if isinstance(message, AssistantMessage))
    assert {run.status for run in store.runs(name).result()} <= {"ended", "crashed"}
    return result.messages


@pytest.mark.usefixtures("quick")
def test_a_lock_while_a_run_is_stopped_destroys_nothing(place: Place) -> None:
    """The run ends without its store; what it had sent lands afterwards, and the next run writes after that."""

    async def main() -> None:
        store = place.make()
        model = Gated([Say(WORDS), Stall()], "Second.", "Third.")
        agent = Agent(model, session=Session("s", store))
        run = agent.start("Go")
        reading = asyncio.create_task(read(run, model, place.lock))
        await model.said.wait()
        run.cancel("enough")
        result = await run
        seen = await reading
        assert result.stop_reason == "cancelled"
        assert result.receipt.saved is False
        assert len(text_of(seen)) < len(WORDS)
        await place.unlock()
        await landed(store)
        second = await agent.invoke_async("Again")
        assert second.receipt.saved
        assert second.text == "Second."
        assert faults(second.messages) == ()
        messages = await check_readable(place, text_of(seen))
        assert [message.text for message in messages if message.text in ("Second.", "Another.")] == [
            "Second.",
            "Another.",
        ]
        third = await agent.invoke_async("Once more")
        assert third.messages[: len(messages)] == messages

    asyncio.run(main())


def _locked_for(place: Place, seconds: float) -> Callable[[], Awaitable[None]]:
    async def lock() -> None:
        await place.lock()
        asyncio.get_running_loop().call_later(seconds, lambda: tasks.append(asyncio.ensure_future(place.unlock())))

    tasks: list[Any] = []
    return lock


@pytest.mark.parametrize("hooked", [False, True])
def test_the_end_of_a_run_waits_for_a_store_that_is_locked(
    place: Place, monkeypatch: pytest.MonkeyPatch, hooked: bool
) -> None:
    monkeypatch.setattr(settle, "SAVE_GRACE", 0.1)

    async def main() -> None:
        store = place.make()
        model = Gated(WORDS)
        agent = Agent(model, session=Session("s", store))
        if hooked:
            from quiesce.hooks import AfterRun

            agent.hook(AfterRun)(lambda event: None)
        seen = await read(agent.start("Go"), model, _locked_for(place, 0.7))
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].stop_reason == "end_turn"
        assert seen[-1].receipt.saved
        assert text_of(seen) == WORDS
        await check_readable(place, WORDS)

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_a_run_whose_end_cannot_be_saved_does_not_look_successful(place: Place) -> None:
    async def main() -> None:
        store = place.make()
        model = Gated(WORDS, "Second.")
        agent = Agent(model, session=Session("s", store))
        run = agent.start("Go")
        seen = await read(run, model, place.lock)
        with pytest.raises(StoreUnavailable) as raised:
            await run
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].stop_reason == "error"
        assert seen[-1].receipt.saved is False
        result = raised.value.result
        assert result is not None
        assert result.messages[-1].text == WORDS
        await place.unlock()
        await landed(store)
        stored = [each.event for each in await Session("s", store).events(run.id)]
        assert stored[: len(seen) - 1] == seen[:-1]  # nothing was shown that is not there
        assert (await agent.invoke_async("Again")).text == "Second."
        await check_readable(place, text_of(seen))

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_what_went_on_in_memory_is_saved_by_the_next_run_first(place: Place) -> None:
    async def main() -> None:
        store = place.make()
        model = Gated(WORDS, "Second.")
        agent = Agent(model, session=Session("s", store, on_store_failure="continue"))
        run = agent.start("Go")
        seen = await read(run, model, place.lock)
        result = await run
        assert result.stop_reason == "end_turn"
        assert result.receipt.saved is False
        assert text_of(seen) == WORDS
        assert any(isinstance(event, StoreFailed) for event in seen)
        with pytest.raises(StoreUnavailable):  # it is still locked: nothing goes on before that is saved
            await agent.invoke_async("Too soon")
        await place.unlock()
        await landed(store)
        second = await agent.invoke_async("Again")
        assert second.receipt.saved
        assert [message.text for message in second.messages] == ["Go", WORDS, "Again", "Second."]
        stored = [each.event for each in await Session("s", store).events(run.id)]
        assert text_of(stored) == WORDS
        assert isinstance(stored[-1], RunEnded)
        assert await Session("s", store).receipt(run.id) is not None
        await check_readable(place, WORDS)

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_a_stop_ends_the_wait_for_a_store_at_the_end(place: Place) -> None:
    """The answer is complete when the stop comes, and it is not saved: an error, soon, and nothing shown."""

    async def main() -> None:
        store = place.make()
        model = Gated(WORDS)
        agent = Agent(model, session=Session("s", store))
        run = agent.start("Go")
        reading = asyncio.create_task(read(run, model, place.lock))
        await model.said.wait()
        while run.phase is not Phase.SETTLING:
            assert not run.done
            await asyncio.sleep(0)
        run.cancel("enough")
        with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await asyncio.wait_for(run, 0.6)
        seen = await reading
        assert len(text_of(seen)) < len(WORDS)
        await place.unlock()
        await landed(store)
        await check_readable(place, text_of(seen))

    asyncio.run(main())
