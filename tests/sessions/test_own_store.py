"""A store of one's own: four methods, for the sessions of one process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.errors import LeaseLost, StoreDamaged, StoreError, StoreUnavailable
from quiesce.models.scripted import ScriptedModel
from quiesce.sessions import Coordination, Session, SessionStore, Store, resolve_store
from quiesce.sessions.records import holder
from quiesce.sessions.stores.content import Created, encode_record
from quiesce.sessions.stores.local import LocalStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.resolve import default_path

from .conftest import own_store
from .test_stores import batch, taken

pytestmark = pytest.mark.promise("P9")


class Records:
    """A store in a dictionary. `append` raises the `failures`; with `lands`, when the record is stored."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, bytes]] = {}
        self.failures: list[Exception] = []
        self.lands = False

    def append(self, session: str, number: int, record: bytes) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not self.lands:
            raise failure
        if number in self.records.setdefault(session, {}):
            raise FileExistsError(number)
        self.records[session][number] = record
        if failure is not None:
            raise failure

    def read(self, session: str) -> list[bytes]:
        return [record for _, record in sorted(self.records.get(session, {}).items())]

    def names(self) -> list[str]:
        return list(self.records)

    def delete(self, session: str) -> None:
        del self.records[session]


def test_the_same_store_has_the_same_leases() -> None:
    one, other = Records(), Records()
    assert isinstance(one, Store)
    assert not isinstance(one, SessionStore)
    assert resolve_store(one) is resolve_store(one)
    assert resolve_store(one) is not resolve_store(other)
    memory = MemoryStore()
    assert resolve_store(memory) is memory


def test_what_is_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    first = LocalStore(own_store(tmp_path))
    first.write(taken(first, name="../odd").lease, batch(end="end_turn")).result()
    next_process = LocalStore(own_store(tmp_path))
    assert [info.name for info in next_process.sessions().result()] == ["../odd"]
    assert next_process.load("../odd").result().messages == first.load("../odd").result().messages
    assert next_process.runs("../odd").result() == first.runs("../odd").result()
    assert [path.name for path in tmp_path.iterdir()] == ["%2E%2E%2Fodd"]
    for store in (first, next_process):
        store.close().result()


@pytest.mark.parametrize("lands", [False, True])
def test_a_write_that_fails_is_tried_again_and_is_there_once(lands: bool) -> None:
    records = Records()
    records.lands = lands

    async def main() -> None:
        agent = Agent(ScriptedModel("One.", "Two."), session=Session("s", records))
        await agent.invoke_async("First")
        records.failures = [TimeoutError("away"), TimeoutError("away")] if not lands else [TimeoutError("unheard")]
        result = await agent.invoke_async("Second")
        assert result.receipt.saved
        assert not records.failures
        stored = await Session("s", LocalStore(records)).load()
        assert stored == result.messages
        assert len(stored) == 4
        assert faults(stored) == ()

    asyncio.run(main())


def test_a_second_process_is_noticed_and_told_what_to_use() -> None:
    records = Records()
    one, other = LocalStore(records), LocalStore(records)
    mine, theirs = taken(one).lease, taken(other).lease
    other.write(theirs, batch("r2")).result()
    with pytest.raises(LeaseLost, match="one process") as lost:
        one.write(mine, batch("r1")).result()
    assert "Postgres" in lost.value.todo
    with pytest.raises(LeaseLost):  # for good: nothing is written with this lease any more
        one.write(mine, batch("r1")).result()
    assert [run.run_id for run in one.runs("s").result()] == ["r2"]
    assert taken(one).lease.fence > mine.fence
    for store in (one, other):
        store.close().result()


def test_a_late_outcome_needs_no_lease_in_any_process() -> None:
    records = Records()
    one, other = LocalStore(records), LocalStore(records)
    lease = taken(one).lease
    one.write(lease, batch(end="end_turn")).result()
    taken(other)
    other.write(taken(other).lease, batch("r2", first=2)).result()
    assert one.add_late(lease.session_id, "r1", b"{}").result()
    assert one.add_late(lease.session_id, "r1", b"{}").result()
    assert not one.add_late(lease.session_id, "r3", b"{}").result()
    assert [row.payload for row in LocalStore(records).rows("s", "r1", marks=True).result()].count(b"{}") == 1


def test_content_is_kept_in_memory_only_while_a_run_holds_the_session() -> None:
    store = LocalStore(Records())
    lease = taken(store).lease
    store.write(lease, batch()).result()
    assert store._sessions["s"].content.length == 2
    store.release(lease).result()
    assert store._sessions["s"].content.length == 0
    assert len(store.load("s").result().messages) == 2


@pytest.mark.parametrize(("failure", "expected"), [(OSError("gone"), StoreUnavailable), (KeyError("bug"), StoreError)])
def test_failures_are_store_errors(failure: Exception, expected: type[StoreError]) -> None:
    records = Records()
    records.failures = [failure]
    store = LocalStore(records)
    with pytest.raises(expected, match="Records") as raised:
        store.acquire("s", holder("me"), seconds=60).result()
    assert raised.value.retryable is (expected is StoreUnavailable)
    assert taken(store).lease.fence == 1


@pytest.mark.parametrize("record", [b"?", b"", encode_record(Created("text", 1.0)).replace(b"text", b"\xff" * 4)])
def test_a_record_that_is_torn_is_damage(record: bytes) -> None:
    records = Records()
    store = LocalStore(records)
    store.release(taken(store).lease).result()
    records.records["s"][1] = record
    with pytest.raises(StoreDamaged, match="cannot be read"):
        store.load("s").result()
    del records.records["s"][0]
    with pytest.raises(StoreDamaged):
        store.load("s").result()


def test_coordination_is_a_part_of_a_session_store() -> None:
    members = {name for name in vars(Coordination) if not name.startswith("_")}
    assert "subscribe" in members
    assert not members & {name for name in vars(Store) if not name.startswith("_")}


def test_the_users_own_file_is_where_it_always_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUIESCE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_path() == tmp_path / ".local" / "share" / "quiesce" / "sessions.db"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "quiesce" / "sessions.db"


def test_a_damaged_session_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """One torn record, and no session was listed, and no run found."""
    records = Records()
    store = LocalStore(records)
    for name in ("torn", "whole"):
        store.write(taken(store, name=name).lease, batch(end="end_turn")).result()
    records.records["torn"][1] = b"?"
    fresh = LocalStore(records)
    assert [info.name for info in fresh.sessions().result()] == ["whole"]
    assert fresh.find_run("r1").result() == ["whole"]
    assert "torn" in caplog.text
