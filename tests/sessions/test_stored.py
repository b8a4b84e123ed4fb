"""Stores that were written by code from before things had their present names: they are read, recovered, continued.

What they hold, and how they were made, is in `stored/write.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Session, tool
from quiesce.conversation.validity import faults
from quiesce.errors import SessionBusy
from quiesce.events import ChildEvent, HandedOff, RunEnded, SessionRecovered, StopRequested
from quiesce.messages import Outcome, ToolMessage
from quiesce.receipt import Receipt
from quiesce.sessions.export import export_session, import_session
from quiesce.sessions.records import Holder, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import ScriptedModel

pytestmark = pytest.mark.promise("P9")

FOLDER = Path(__file__).parent / "stored"
SESSIONS = {"finished", "cancelled", "handed", "child handed", "approval", "late", "crashed", "queued"}


class OldStore:
    """A copy of a stored file or dump, and the store that reads it."""

    def __init__(self, store: SessionStore, change: Any) -> None:
        self.store = store
        self.change = change
        """Runs one SQL statement, written for SQLite, on the copy."""


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldStore]:
    if request.param == "sqlite":
        path = tmp_path / "sessions.db"
        path.write_bytes(gzip.decompress((FOLDER / "sqlite.db.gz").read_bytes()))
        old = OldStore(SQLiteStore(path), lambda statement: _change_sqlite(path, statement))
    else:
        from quiesce.sessions.stores.postgres import PostgresStore

        url = request.getfixturevalue("postgres").new_database()
        dump = gzip.decompress((FOLDER / "postgres.sql.gz").read_bytes()).decode()
        asyncio.run(_change_postgres(url, "\n".join(line for line in dump.splitlines() if line[:1] != "\\")))
        old = OldStore(
            PostgresStore(url),
            lambda statement: asyncio.run(_change_postgres(url, statement.replace("UPDATE ", "UPDATE quiesce_"))),
        )
    yield old
    old.store.close().result()


def _change_sqlite(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


async def _change_postgres(url: str, statements: str) -> None:
    import asyncpg

    database = await asyncpg.connect(url)
    await database.execute(statements)
    await database.close()


def run_ids(store: SessionStore, session: str) -> list[str]:
    return [run.run_id for run in store.runs(session).result()]


async def receipt_of(store: SessionStore, session: str, run_id: str) -> Receipt:
    receipt = await Session(session, store).receipt(run_id)
    assert receipt is not None
    return receipt


def test_each_session_is_read_and_continued(old: OldStore) -> None:
    async def main() -> None:
        for name in SESSIONS - {"approval"}:
            seen = await Session(name, old.store).load()
            assert seen
            assert faults(seen) == ()
            for run_id in [run.run_id for run in await asyncio.wrap_future(old.store.runs(name))]:
                numbers = [number for number, _ in await Session(name, old.store).events(run_id)]
                assert numbers == list(range(1, len(numbers) + 1))
            agent = Agent(ScriptedModel("Go on."), session=name, store=old.store)
            result = await agent.invoke_async("And now?")
            assert result.receipt.saved
            assert result.messages[:-2] == seen
            assert faults(result.messages) == ()

    assert {info.name for info in old.store.sessions().result()} == SESSIONS
    asyncio.run(main())


def test_a_stop_by_a_cancelled_task(old: OldStore) -> None:
    async def main() -> None:
        (run_id,) = [run.run_id for run in await asyncio.wrap_future(old.store.runs("cancelled"))]
        receipt = await receipt_of(old.store, "cancelled", run_id)
        assert receipt.cause is not None
        assert receipt.cause.source == "caller"
        events = [event for _, event in await Session("cancelled", old.store).events(run_id)]
        assert [event.cause.source for event in events if isinstance(event, StopRequested)] == ["caller"]
        assert isinstance(events[-1], RunEnded)
        assert events[-1].receipt == receipt
        below = [event.event for event in events if isinstance(event, ChildEvent)]
        origins = [event.cause.origin.source for event in below if isinstance(event, StopRequested)]  # pyright: ignore[reportOptionalMemberAccess]
        assert origins == ["caller"]

    asyncio.run(main())


def test_an_export_of_an_old_store_is_imported(old: OldStore) -> None:
    async def main(name: str, copy: str) -> None:
        run_ids = [run.run_id for run in await asyncio.wrap_future(old.store.runs(name))]
        assert run_ids
        for run_id in run_ids:
            assert await Session(copy, old.store).events(run_id) == await Session(name, old.store).events(run_id)

    for name in SESSIONS:
        copy = import_session(old.store, export_session(old.store, name), name=f"copy of {name}")
        asyncio.run(main(name, copy))


def test_a_handoff(old: OldStore) -> None:
    async def main() -> None:
        (run_id,) = [run.run_id for run in await asyncio.wrap_future(old.store.runs("handed"))]
        events = [event for _, event in await Session("handed", old.store).events(run_id)]
        assert HandedOff("triage", "french") in events
        (run_id,) = [run.run_id for run in await asyncio.wrap_future(old.store.runs("child handed"))]
        events = [event for _, event in await Session("child handed", old.store).events(run_id)]
        below = [event.event for event in events if isinstance(event, ChildEvent)]
        assert HandedOff("helper", "french") in below

    asyncio.run(main())


def test_a_pending_approval_is_given(old: OldStore) -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    async def main() -> None:
        agent = Agent(ScriptedModel("Done."), tools=[pay], session=Session("approval", old.store))
        assert agent.session is not None
        await agent.session.load()
        (interrupt,) = agent.conversation.interrupts
        result = await agent.answer_async({interrupt.id: True})
        assert (result.text, paid) == ("Done.", [7])
        assert faults(result.messages) == ()

    asyncio.run(main())


def test_a_late_outcome(old: OldStore) -> None:
    (run_id,) = run_ids(old.store, "late")
    receipt = asyncio.run(receipt_of(old.store, "late", run_id))
    assert [(late.call_id, late.ok, late.detail) for late in receipt.late] == [("c1", True, "ploughed")]


def test_a_crash_is_recovered(old: OldStore) -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel("Go on."), session=Session("crashed", old.store))
        run = agent.start("And now?")
        events = [event async for event in run]
        (recovered,) = [event for event in events if isinstance(event, SessionRecovered)]
        assert [call.id for call in recovered.unknown] == ["c2"]
        (results,) = [message.results for message in agent.messages if isinstance(message, ToolMessage)]
        assert [(each.call_id, each.outcome) for each in results] == [
            ("c1", Outcome.COMPLETED),
            ("c2", Outcome.UNKNOWN),
        ]
        await run

    asyncio.run(main())
    assert [run.status for run in old.store.runs("crashed").result()] == ["ended", "crashed", "ended"]


def test_the_queue(old: OldStore) -> None:
    """Long after it was written the queue is litter; when it is young, those in it go first."""
    store = old.store
    old.change(f"UPDATE letters SET expires = {time.time() + 600} WHERE expires > 0")
    with pytest.raises(SessionBusy) as busy:
        store.acquire("queued", holder("somebody else"), seconds=60).result()
    assert "process 4242 on a-host" in str(busy.value)
    info = next(info for info in store.sessions().result() if info.name == "queued")
    first = Holder("sender-of-queue-b''", "a-host", 4242)
    with pytest.raises(SessionBusy) as overtaken:
        store.acquire_queued("queued", first, 1, seconds=60).result()
    assert overtaken.value.overtaken, "the last one asks all before it to stop"
    assert store.acquire_queued("queued", first, 4, seconds=60).result().run_id == "run-that-said-it"  # pyright: ignore[reportAttributeAccessIssue]
    assert store.withdraw("queued", 2).result().run_id == "run-that-took-it"  # pyright: ignore[reportOptionalMemberAccess]
    for position in (1, 3, 4, 6):
        assert store.withdraw("queued", position).result() is None
    lease = store.acquire("queued", holder("somebody else"), seconds=60).result().lease
    assert lease.fence == info.fence + 1
    assert store.queued_prompts(lease).result() == []
