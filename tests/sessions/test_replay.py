"""The events of a stored run, told again exactly as they were told: the same pieces under the same numbers."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from quiesce import Agent, Session, tool
from quiesce.errors import StoreDamaged
from quiesce.events import (
    ChildEvent,
    Event,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    ToolCallArguments,
    ToolProgress,
    TurnStarted,
)
from quiesce.run.handle import state_of
from quiesce.sessions.export import export_session, import_session
from quiesce.sessions.journal.rows import Commit, JournalRow, Row, ToolIntended, encode, pack, unpack
from quiesce.sessions.records import Lease, RunBegin, RunEnd, WriteBatch, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.schema import POSTGRES_MIGRATIONS, SQLITE_MIGRATIONS
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, Fail, Say, ScriptedModel, Stall, Think

from .conftest import Postgres, StoreMaker

pytestmark = pytest.mark.promise("P9", "P3")


@tool
async def echo(word: str) -> str:
    """Say it again."""
    return word


async def told(run: Any) -> list[tuple[int, bytes]]:
    """What a reader of the running run gets, numbered as the server does."""
    events: list[tuple[int, bytes]] = []
    async for event in run:
        events.append((len(events) + 1, encode(event)))
    return events


async def told_again(store: SessionStore, run_id: str, after: int = 0) -> list[tuple[int, bytes]]:
    return [(number, encode(event)) for number, event in await Session("s", store).events(run_id, after=after)]


def test_a_run_is_told_again_as_it_was_told(new_store: StoreMaker) -> None:
    async def main() -> None:
        helper = Agent(ScriptedModel([Think("Hm. So."), Say("The helper speaks.", chunk=3)]), name="helper")
        model = ScriptedModel(
            [
                Think("Let me see."),
                Say("I look.", chunk=2),
                Call("echo", {"word": "w"}),
                Call("helper", {"prompt": "?"}),
            ],
            Say("That was all. ", chunk=1, pause=0.001),
        )
        run = Agent(model, tools=[echo, helper], session=Session("s", new_store())).start("Go")
        live = await told(run)
        stored = await told_again(new_store(), run.id)
        assert stored == live
        kinds = [type(event) for _, event in await Session("s", new_store()).events(run.id)]
        assert kinds.count(TextDelta) > 10
        assert ChildEvent in kinds
        assert kinds[-1] is RunEnded
        store = new_store()
        for after in range(len(live) + 2):
            assert await told_again(store, run.id, after) == live[after:]

    asyncio.run(main())


def test_a_run_that_failed_is_told_again_with_its_error(new_store: StoreMaker) -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([Say("Well. "), Fail(ValueError("no"))]), session=Session("s", new_store())).start(
            "Go"
        )
        live = await told(run)
        stored = await told_again(new_store(), run.id)
        assert stored == live
        assert b"error_type" in stored[-1][1]

    asyncio.run(main())


def test_what_is_told_of_a_run_that_goes_on_is_a_beginning_of_it(new_store: StoreMaker) -> None:
    async def main() -> None:
        model = ScriptedModel([Say("One two three. ", chunk=1), Stall()])
        run = Agent(model, session=Session("s", new_store())).start("Go")
        live: list[tuple[int, bytes]] = []
        words = ""
        async for event in run:
            live.append((len(live) + 1, encode(event)))
            words += event.text if isinstance(event, TextDelta) else ""
            if words == "One two three. ":
                break
        assert (await told_again(new_store(), run.id))[: len(live)] == live
        run.cancel("enough")
        await run.stopped()

    asyncio.run(main())


def test_a_long_run_is_read_in_steps(new_store: StoreMaker) -> None:
    async def main() -> None:
        store = new_store()
        model = ScriptedModel([Say("word " * 30, chunk=5), Call("echo", {"word": "w"})], Say("end " * 30, chunk=4))
        run = Agent(model, tools=[echo], session=Session("s", store)).start("Go")
        live = await told(run)
        for most in (1, 2, 7):
            stored: list[tuple[int, bytes]] = []
            while page := list(unpack(store.rows("s", run.id, after=len(stored), most=most).result(), len(stored))):
                stored += [(number, encode(event)) for number, event in page]
            assert stored == live

    asyncio.run(main())


def test_export_and_import_keep_the_numbers(new_store: StoreMaker) -> None:
    async def main() -> None:
        store = new_store()
        run = Agent(ScriptedModel(Say("word " * 9, chunk=3)), session=Session("s", store)).start("Go")
        live = await told(run)
        lines = list(export_session(store, "s"))
        await asyncio.wrap_future(store.delete("s"))
        import_session(store, lines)
        assert await told_again(store, run.id) == live
        assert list(export_session(store, "s"))[1:] == lines[1:]

    asyncio.run(main())


# --- Rows ------------------------------------------------------------------------------------------------------------

TEXT = strategies.text(alphabet=strategies.characters(codec=None, categories=None), max_size=4)
DELTAS = strategies.one_of(
    strategies.builds(TextDelta, TEXT),
    strategies.builds(ReasoningDelta, TEXT, strategies.sampled_from([None, None, "signed"])),
    strategies.builds(ToolCallArguments, strategies.sampled_from(["a", "b"]), TEXT),
    strategies.just(TurnStarted(1)),
)
ENTRIES = strategies.one_of(
    DELTAS,
    DELTAS,
    strategies.builds(ChildEvent, strategies.sampled_from(["c", "d"]), strategies.just("r"), DELTAS),
    strategies.sampled_from([Commit(1), ToolIntended("a")]),
)


@given(strategies.lists(ENTRIES, max_size=30), strategies.integers(0, 31))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_packing_loses_nothing(entries: list[JournalRow], after: int) -> None:
    """Halves of characters, pieces without any text, and whatever else a stream may bring."""
    events = [each for each in entries if not isinstance(each, Commit | ToolIntended)]
    assert list(unpack(pack(entries, 1), after)) == list(enumerate(events, 1))[after:]


def test_joined_rows_are_few() -> None:
    chunks: list[Event] = [TextDelta("word ") for _ in range(1000)]
    in_a_child: list[Event] = [ChildEvent("c", "r", chunk) for chunk in chunks]
    assert len(pack([*chunks, *in_a_child], 1)) == 2


def test_a_row_that_does_not_fit_its_pieces_is_damaged() -> None:
    (row,) = pack([TextDelta("a"), TextDelta("b")], 1)
    for broken in (row._replace(lengths=b"\x92\x01\x02"), row._replace(lengths=b"?!"), row._replace(lengths=b"\x90")):
        with pytest.raises(StoreDamaged):
            list(unpack([broken]))


def test_what_a_tool_reports_looks_the_same_when_it_is_told_again() -> None:
    from quiesce.server.event_log import to_json

    for odd in (object, {1: {2}}, "x" * 5000, [object()] * 3, type("Long", (), {"__repr__": lambda _: "y" * 5000})()):
        event = ToolProgress("1", "tool", odd)
        ((_, again),) = unpack(pack([event], 1))
        assert to_json(again) == to_json(event)


# --- From before events were numbered --------------------------------------------------------------------------------


def _old_rows() -> list[Row]:
    return [row._replace(number=None, lengths=b"") for row in pack([TextDelta("H"), TextDelta("i"), Commit(2)], 1)]


def _check_old(store: SessionStore) -> None:
    """What an older version has left loads, goes on, and new runs beside it are numbered."""

    async def main() -> None:
        assert await told_again(store, "r1") == [(1, encode(TextDelta("Hi")))]
        run = Agent(ScriptedModel("And now."), session=Session("s", store)).start("Go")
        live = await told(run)
        assert await told_again(store, run.id) == live
        assert [row.number for row in store.rows("s", "r1", marks=True).result()] == [None, None]

    asyncio.run(main())


def test_a_file_from_before(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as db:
        for statement in SQLITE_MIGRATIONS[0]:
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO sessions (name, id, created, updated) VALUES ('s', 'id', 1.0, 1.0)")
        db.execute("INSERT INTO runs (session, run, agent, started, status) VALUES ('id', 'r1', 'a', 1.0, 'ended')")
        for seq, row in enumerate(_old_rows()):
            values = ("id", "r1", seq, row.payload)
            db.execute("INSERT INTO journal (session, run, seq, payload) VALUES (?, ?, ?, ?)", values)
    db.close()
    store = SQLiteStore(path)
    _check_old(store)
    store.close().result()


def test_a_database_from_before(postgres: Postgres) -> None:
    import asyncpg

    from quiesce.sessions.stores.postgres import PostgresStore

    url = postgres.new_database()

    async def fill() -> None:
        db = await asyncpg.connect(url)
        await db.execute("CREATE TABLE quiesce_schema (version INTEGER NOT NULL)")
        for statement in POSTGRES_MIGRATIONS[0]:
            await db.execute(statement)
        await db.execute("INSERT INTO quiesce_schema (version) VALUES (1)")
        await db.execute("INSERT INTO quiesce_sessions (name, id, created, updated) VALUES ('s', 'id', 1.0, 1.0)")
        await db.execute(
            "INSERT INTO quiesce_runs (session, run, agent, started, status) VALUES ('id', 'r1', 'a', 1.0, 'ended')"
        )
        for seq, row in enumerate(_old_rows()):
            values = ("id", "r1", seq, row.payload)
            await db.execute(
                "INSERT INTO quiesce_journal (session, run, seq, payload) VALUES ($1, $2, $3, $4)", *values
            )
        await db.close()

    asyncio.run(fill())
    store = PostgresStore(url)
    _check_old(store)
    store.close().result()


def test_an_export_from_before(store: SessionStore) -> None:
    lease = store.acquire("s", holder("me"), seconds=60).result().lease
    batch = WriteBatch("r1")
    batch.begin, batch.end = RunBegin("a", 1.0), RunEnd("ended", "end_turn", 2.0)
    batch.take_rows(_old_rows())
    store.write(lease, batch).result()
    store.release(lease).result()
    lines = list(export_session(store, "s"))
    assert not any(b'"number"' in line or b'"lengths"' in line for line in lines)
    store.delete("s").result()
    import_session(store, lines)
    _check_old(store)


def test_what_comes_after_the_end_was_written_down_is_not_told() -> None:
    """Or the last event would have one number for those who read the run, and another one in the store."""

    class Tardy(MemoryStore):
        def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
            if batch.closing is not None:
                state_of(run).events.push(TurnStarted(99))
            return super().write(lease, batch)

    async def main() -> None:
        nonlocal run
        store = Tardy()
        run = Agent(ScriptedModel("Well."), session=Session("s", store)).start("Go")
        live = await told(run)
        assert await told_again(store, run.id) == live

    run: Any = None
    asyncio.run(main())
