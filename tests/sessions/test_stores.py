"""The rules of a store, for every kind of store."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from quiesce.errors import LeaseLost, SessionBusy, SessionExists, SessionNotFound, StoreDamaged, StoreError
from quiesce.events import ReasoningDelta, TextDelta, ToolCallArguments, ToolProgress
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.sessions.export import export_session, import_session
from quiesce.sessions.journal.rows import LATE_ROWS, Commit, decode_row, encode, pack, unpack
from quiesce.sessions.queue.prompts import QueueRequest
from quiesce.sessions.records import (
    AcquiredSession,
    Holder,
    RunBegin,
    RunEnd,
    SentElsewhere,
    Snapshot,
    WriteBatch,
    holder,
)
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores import sql_sessions
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.schema import SQLITE_MIGRATIONS
from quiesce.sessions.stores.sqlite import SQLiteStore

from .conftest import Databases, StoreMaker

pytestmark = pytest.mark.promise("P9")

SAID = [UserMessage((Text("Hello"),)), AssistantMessage((Text("Hi"),))]


def batch(run: str = "r1", *, row: int = 0, first: int = 0, end: str | None = None) -> WriteBatch:
    made = WriteBatch(run, first_row=row)
    made.begin = RunBegin("agent", 1.0)
    made.entries = [TextDelta("H"), TextDelta("i"), Commit(2)]
    made.messages, made.first_message = list(SAID), first
    if end is not None:
        made.end = RunEnd("ended", end, 2.0)
    return made


def taken(store: SessionStore, owner: str = "me", name: str = "s", seconds: float = 60):
    return store.acquire(name, holder(owner), seconds=seconds).result()


def test_what_is_written_is_read_by_others(new_store: StoreMaker) -> None:
    store = new_store()
    lease = taken(store).lease
    store.write(lease, batch(end="end_turn")).result()
    snapshot = new_store().load("s").result()
    assert snapshot.messages == [encode(message) for message in SAID]
    assert snapshot.unfinished == {}
    assert [decode_row(row.payload) for row in store.rows("s", "r1", marks=True).result()] == [
        TextDelta("Hi"),
        Commit(2),
    ]
    (run,) = store.runs("s").result()
    assert (run.run_id, run.status, run.reason) == ("r1", "ended", "end_turn")


def test_no_event_has_so_high_a_number(store: SessionStore) -> None:
    store.write(taken(store).lease, batch()).result()
    for after in (2, 2**63 - 1, 2**64):
        assert list(unpack(store.rows("s", "r1", after=after).result(), after)) == []


def test_a_batch_written_twice_is_there_once(store: SessionStore) -> None:
    lease = taken(store).lease
    for _ in range(3):
        store.write(lease, batch()).result()
    snapshot = store.load("s").result()
    assert len(snapshot.messages) == 2
    assert len(snapshot.unfinished["r1"]) == 2


def test_a_session_is_busy_until_it_is_released(new_store: StoreMaker) -> None:
    one, other = new_store(), new_store()
    lease = taken(one).lease
    with pytest.raises(SessionBusy, match="process") as busy:
        taken(other, "you")
    assert 0 < busy.value.expires_in <= 60
    with pytest.raises(SessionBusy):
        other.delete("s").result()
    one.release(lease).result()
    assert taken(other, "you").lease.fence == lease.fence + 1


def test_an_expired_lease_is_taken_over_and_the_old_writer_is_fenced_off(new_store: StoreMaker) -> None:
    one, other = new_store(), new_store()
    old = taken(one, seconds=-1).lease
    new = taken(other, "you").lease
    with pytest.raises(LeaseLost):
        one.write(old, batch()).result()
    with pytest.raises(LeaseLost):
        one.renew(old).result()
    one.release(old).result()  # harmless
    assert other.load("s").result().messages == []
    other.write(new, batch()).result()
    assert other.load("s").result().info.holder is not None


def test_a_lease_whose_process_is_gone_is_taken_over_at_once(store: SessionStore) -> None:
    here = holder("dead")
    if not here.process:
        pytest.skip("this system does not tell")
    gone = msgspec.structs.replace(here, process=here.process + "0")
    store.acquire("s", gone, seconds=1000).result()
    assert taken(store).lease.fence == 2


def test_a_holder_on_another_machine_is_believed_to_live() -> None:
    assert not Holder("x", "elsewhere", 1, "other-boot/pid:[1]/1/1").is_gone
    assert not Holder("x", "elsewhere", 1).is_gone
    assert not holder("me").is_gone


def test_the_same_owner_may_take_it_again_and_its_older_writes_are_refused(store: SessionStore) -> None:
    old = taken(store).lease
    new = taken(store).lease
    with pytest.raises(LeaseLost):
        store.write(old, batch()).result()
    store.write(new, batch()).result()


def test_what_is_known_is_not_sent_again(store: SessionStore) -> None:
    first = taken(store)
    assert first.snapshot is not None
    revision = store.write(first.lease, batch()).result()
    assert store.acquire("s", holder("me"), seconds=60, known=revision).result().snapshot is None
    assert store.acquire("s", holder("me"), seconds=60, known=revision - 1).result().snapshot is not None


def test_delete_leaves_nothing_and_the_name_can_be_used_again(store: SessionStore) -> None:
    old = taken(store).lease
    store.write(old, batch()).result()
    store.release(old).result()
    store.delete("s").result()
    for ask in (store.load, store.runs, store.delete):
        with pytest.raises(SessionNotFound):
            ask("s").result()
    assert store.sessions().result() == []
    new = taken(store)
    assert new.snapshot is not None
    assert new.snapshot.messages == []
    assert new.lease.session_id != old.session_id
    with pytest.raises(LeaseLost):
        store.write(old, batch()).result()


def test_a_run_is_found_by_its_id_and_deleted_alone(new_store: StoreMaker) -> None:
    store = new_store()
    lease = taken(store).lease
    store.write(lease, batch("r1", end="end_turn")).result()
    store.write(lease, batch("r2")).result()
    assert (store.find_run("r1").result(), store.find_run("none").result()) == (["s"], [])
    store.delete_run("s", "r1").result()
    store.delete_run("s", "r2").result()  # which has not ended
    store.delete_run("s", "none").result()
    other = new_store()
    assert [run.run_id for run in other.runs("s").result()] == ["r2"]
    assert (other.find_run("r1").result(), other.find_run("r2").result()) == ([], ["s"])
    assert other.rows("s", "r1", marks=True).result() == []
    assert other.rows("s", "r2").result()
    assert other.load("s").result().messages == [encode(message) for message in SAID]
    with pytest.raises(SessionNotFound):
        store.delete_run("none", "r1").result()


def test_a_late_write_does_not_bring_a_deleted_run_back(store: SessionStore) -> None:
    lease = taken(store).lease
    ending = batch("r1", end="end_turn")
    ending.release = True
    store.write(lease, ending).result()
    store.delete_run("s", "r1").result()
    with pytest.raises(LeaseLost):
        store.write(lease, ending).result()
    assert store.runs("s").result() == []


def test_values_of_a_session(store: SessionStore) -> None:
    made = batch()
    made.values = {"pending": b"\x00"}
    store.write(taken(store).lease, made).result()
    assert store.load("s").result().values == {"pending": b"\x00"}


def test_a_closed_store_opens_again(store: SessionStore) -> None:
    store.write(taken(store).lease, batch()).result()
    store.close().result()
    assert len(store.load("s").result().messages) == 2


def test_export_and_import_are_the_same_session(store: SessionStore) -> None:
    lease = taken(store).lease
    made = batch(end="end_turn")
    made.values = {"k": b"\x00v"}
    store.write(lease, made).result()
    store.write(lease, batch("r2", first=2)).result()
    store.release(lease).result()
    lines = list(export_session(store, "s"))
    assert import_session(store, lines, name="t") == "t"
    again = list(export_session(store, "t"))
    assert again[1:] == lines[1:]
    with pytest.raises(SessionExists):
        import_session(store, lines)
    value = b'{"line":"value","key":"k","value":"no base64"}'
    for broken in (lines[1:], lines[:2], lines[:-1], [*lines, lines[-1]], [*lines[:-1], value], [b"what?"], []):
        with pytest.raises(StoreDamaged):
            import_session(store, broken, name="u")
    with pytest.raises(SessionNotFound):
        store.load("u").result()


class Meanwhile(MemoryStore):
    """Something else is done right after the first call of `after`, or right before the first call of `before`."""

    def __init__(self, **what: Callable[[SessionStore], None]) -> None:
        super().__init__()
        self._what = what

    def load(self, session: str) -> Future[Snapshot]:
        found = super().load(session)
        self._what.pop("after_load", lambda _: None)(self)
        return found

    def acquire(self, *args: Any, **options: Any) -> Future[AcquiredSession]:
        self._what.pop("before_acquire", lambda _: None)(self)
        return super().acquire(*args, **options)


def test_an_export_is_of_one_moment_although_a_run_goes_on() -> None:
    """The messages were those before the end of the run, and the run was exported as ended: its answer was lost."""
    target, lease = MemoryStore(), None

    def end_and_begin_another(store: SessionStore) -> None:
        assert lease is not None
        ending = batch(first=2, row=2, end="end_turn")
        ending.begin = None
        store.write(lease, ending).result()
        store.write(lease, batch("r2", first=4)).result()

    store = Meanwhile(after_load=end_and_begin_another)
    lease = taken(store).lease
    store.write(lease, batch()).result()
    import_session(target, export_session(store, "s"))
    found, runs = target.load("s").result(), target.runs("s").result()
    rows = [target.rows("s", run.run_id, marks=True).result() for run in runs]
    assert (len(found.messages), [run.status for run in runs], list(map(len, rows))) in (
        (2, ["running"], [2]),
        (6, ["ended", "running"], [4, 2]),
    )


def test_an_import_does_not_touch_a_session_that_is_made_meanwhile() -> None:
    source = MemoryStore()
    lease = taken(source).lease
    source.write(lease, batch(end="end_turn")).result()

    def make(store: SessionStore) -> None:
        lease = taken(store).lease
        store.write(lease, batch("theirs", end="end_turn")).result()
        store.release(lease).result()

    target = Meanwhile(before_acquire=make)
    with pytest.raises(SessionExists):
        import_session(target, export_session(source, "s"))
    assert [run.run_id for run in target.runs("s").result()] == ["theirs"]
    assert target.sessions().result()[0].holder is None


def test_pieces_are_merged_and_nothing_else() -> None:
    rows = [
        TextDelta("a"),
        TextDelta("b"),
        ReasoningDelta("c"),
        ReasoningDelta("d"),
        ReasoningDelta("", "signed"),
        ReasoningDelta("e"),
        ToolCallArguments("1", "x"),
        ToolCallArguments("1", "y"),
        ToolCallArguments("2", "z"),
        TextDelta("f"),
    ]
    assert [decode_row(row.payload) for row in pack(rows)] == [
        TextDelta("ab"),
        ReasoningDelta("cd"),
        ReasoningDelta("", "signed"),
        ReasoningDelta("e"),
        ToolCallArguments("1", "xy"),
        ToolCallArguments("2", "z"),
        TextDelta("f"),
    ]


def test_half_a_character_and_odd_reports_survive_the_journal() -> None:
    half = TextDelta("\ud83d")
    assert decode_row(encode(half)) == half
    odd = decode_row(encode(ToolProgress("1", "tool", {"at": object})))
    assert isinstance(odd, ToolProgress)
    assert "object" in str(odd.progress)
    with pytest.raises(StoreDamaged):
        decode_row(b"{")


def test_a_file_of_an_older_version_is_migrated_and_one_of_a_newer_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    sqlite3.connect(path).close()  # version 0: an empty file
    store = SQLiteStore(path)
    taken(store)
    store.close().result()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(SQLITE_MIGRATIONS),)
        db.execute("PRAGMA user_version = 99")
        db.execute("DELETE FROM store_values")  # it does not say which versions can use it
    db.close()
    with pytest.raises(StoreError, match="newer Quiesce"):
        store.sessions().result()
    store.close().result()


def test_a_file_that_is_no_database_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    path.write_bytes(b"not a database at all" * 100)
    store = SQLiteStore(path)
    with pytest.raises(StoreDamaged, match=r"odd\.db"):
        store.sessions().result()
    store.close().result()


@pytest.mark.promise("P8")
def test_a_session_that_is_deleted_while_another_process_asks_for_it_is_made_anew(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted after it was found to exist, and before it was read: the other process got an `AssertionError`."""
    with databases.one() as url:
        one, other = PostgresStore(url), PostgresStore(url)
        one.release(taken(one).lease).result()
        find = sql_sessions.find_session
        deletions = [other.delete]

        def find_later(session: str, *, locked: bool = False) -> Any:
            if deletions and threading.current_thread().name == one._thread.name:
                deletions.pop()(session).result()
            return (yield from find(session, locked=locked))

        monkeypatch.setattr(other._thread, "name", "the other process")
        monkeypatch.setattr(sql_sessions, "find_session", find_later)
        other.sessions().result()
        assert taken(one).lease.fence == 1
        for store in (one, other):
            store.close().result()


@pytest.mark.promise("P9")
def test_a_late_outcome_that_comes_during_a_deletion_leaves_nothing(databases: Databases) -> None:
    """The row was written after the journal was deleted, and stayed for ever."""
    with databases.one() as url:
        store = PostgresStore(url)
        lease = taken(store).lease
        store.write(lease, batch(end="end_turn")).result()
        store.release(lease).result()
        run = (lease.session_id, "r1")

        async def main() -> list[Any]:
            late, reader = await asyncpg.connect(url), await asyncpg.connect(url)
            adding = late.transaction()
            await adding.start()
            await late.fetch("SELECT 1 FROM quiesce_runs WHERE session = $1 AND run = $2 FOR UPDATE", *run)
            text = "INSERT INTO quiesce_journal (session, run, seq, payload, number) VALUES ($1, $2, $3, '{}', 0)"
            await late.execute(text, *run, LATE_ROWS)
            deletion = store.delete("s")
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type ="
            while not await reader.fetchval(f"{waiting} 'Lock'"):
                pass
            await adding.commit()
            await asyncio.wrap_future(deletion)
            left = await reader.fetch("SELECT * FROM quiesce_journal")
            for each in (late, reader):
                await each.close()
            return left

        assert asyncio.run(main()) == []
        store.close().result()


@pytest.mark.promise("P8")
def test_a_prompt_that_a_dead_run_has_taken_is_not_said_to_be_sent(store: SessionStore) -> None:
    """The process died between taking the prompt and sending it: its sender was told that it was sent."""
    lost = taken(store, seconds=-1).lease
    taking = QueueRequest("steer", holder("you"), -1, b""), QueueRequest("steer", holder("you"), -1, b"")
    first, second = (store.enqueue("s", each).result() for each in taking)
    assert store.take_prompt(lost, first, "r1").result()
    assert store.take_prompt(lost, second, "r1").result()
    assert store.withdraw("s", first).result() == SentElsewhere("r1")  # it may be about to send it
    taken(store, "another")
    assert store.withdraw("s", second).result() is None
