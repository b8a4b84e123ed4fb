"""Every store against the simplest model of one: the same steps must give the same answers."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quiesce.errors import LeaseLost, SessionBusy, SessionNotFound, StoreError
from quiesce.events import TextDelta, TurnStarted
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.sessions.journal.rows import Commit, pack
from quiesce.sessions.records import Lease, RunBegin, RunEnd, WriteBatch, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.sqlite import SQLiteStore

from .conftest import Postgres

pytestmark = pytest.mark.promise("P9")

NAMES = strategies.sampled_from(["one", "two", "drei ß"])
OWNERS = strategies.sampled_from(["ann", "bob"])
WORDS = strategies.text(min_size=1, max_size=8)


class Model:
    """A session as a few lists, with no notion of time: a lease is either held, expired or let go."""

    def __init__(self) -> None:
        self.fence = 0
        self.holder: str | None = None
        self.expired = False
        self.messages: list[bytes] = []
        self.journal: dict[str, list[bytes]] = {}
        self.status: dict[str, str] = {}
        self.values: dict[str, bytes] = {}


class StoreMachine(RuleBasedStateMachine):
    """Two owners, each with a store of their own on the same place, do what they like."""

    make: Any = None
    prefix = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.stores: dict[str, SessionStore] = {"ann": self.make(), "bob": self.make()}
        self.space = f"{next(self.prefix)} "
        self.sessions: dict[str, Model] = {}
        self.leases: list[tuple[str, Lease]] = []
        self.runs = itertools.count(1)

    def expect(self, error: type[StoreError] | None, future: Any) -> Any:
        if error is None:
            return future.result()
        with pytest.raises(error):
            future.result()
        return None

    @rule(name=NAMES, owner=OWNERS, expired=strategies.booleans())
    def acquire(self, name: str, owner: str, expired: bool) -> None:
        model = self.sessions.get(name)
        busy = model is not None and model.holder not in (None, owner) and not model.expired
        asked = self.stores[owner].acquire(self.space + name, holder(owner), seconds=-5 if expired else 500)
        got = self.expect(SessionBusy if busy else None, asked)
        if got is None:
            return
        model = self.sessions.setdefault(name, Model())
        model.fence, model.holder, model.expired = model.fence + 1, owner, expired
        assert got.lease.fence == model.fence
        assert got.snapshot.messages == model.messages
        self.leases.append((name, got.lease))

    def current(self, name: str, lease: Lease) -> Model | None:
        model = self.sessions.get(name)
        info = [each for each in self.stores["ann"].sessions().result() if each.id == lease.session_id]
        return model if model is not None and info and model.fence == lease.fence else None

    @precondition(lambda self: self.leases)
    @rule(data=strategies.data(), words=strategies.lists(WORDS, max_size=3), say=strategies.booleans(),
          end=strategies.sampled_from([None, "ended", "crashed"]), release=strategies.booleans())  # fmt: skip
    def write(self, data: Any, words: list[str], say: bool, end: Any, release: bool) -> None:
        name, lease = data.draw(strategies.sampled_from(self.leases))
        model = self.current(name, lease)
        run = f"r{next(self.runs)}"
        batch = WriteBatch(run)
        batch.begin = RunBegin("agent", float(next(self.runs)))
        batch.entries = [TurnStarted(1), *map(TextDelta, words), Commit(2)]
        if say:
            batch.messages = [UserMessage((Text("Q"),)), AssistantMessage((Text("".join(words) or "A"),))]
        batch.first_message = 0 if model is None else len(model.messages)
        batch.end = None if end is None else RunEnd(end, "because", 1.0)
        batch.values = {"last": run.encode()}
        batch.release = release
        for _ in range(2):  # a batch that is repeated changes nothing more
            self.expect(None if model is not None else LeaseLost, self.stores[lease.owner].write(lease, batch))
        if model is not None:
            model.messages += batch.payloads()
            model.journal[run] = [row.payload for row in pack(batch.entries)]
            model.status[run] = end or "running"
            model.values = dict(batch.values)
            model.expired = False if lease.seconds > 0 else model.expired
            if release:
                model.holder = None

    @precondition(lambda self: self.leases)
    @rule(data=strategies.data())
    def release(self, data: Any) -> None:
        name, lease = data.draw(strategies.sampled_from(self.leases))
        model = self.current(name, lease)
        self.stores[lease.owner].release(lease).result()
        if model is not None:
            model.holder = None

    @rule(name=NAMES, owner=OWNERS)
    def delete(self, name: str, owner: str) -> None:
        model = self.sessions.get(name)
        held = model is not None and model.holder is not None and not model.expired
        error = SessionNotFound if model is None else SessionBusy if held else None
        self.expect(error, self.stores[owner].delete(self.space + name))
        if error is None:
            del self.sessions[name]

    @rule(owner=OWNERS)
    def reopen(self, owner: str) -> None:
        self.stores[owner].close().result()

    @invariant()
    def same(self) -> None:
        for name, model in getattr(self, "sessions", {}).items():
            for store in self.stores.values():
                snapshot = store.load(self.space + name).result()
                assert snapshot.messages == model.messages
                assert snapshot.info.length == len(model.messages)
                assert snapshot.values == model.values
                running = {run: rows for run, rows in model.journal.items() if model.status[run] == "running"}
                assert snapshot.unfinished == running
                runs = store.runs(self.space + name).result()
                assert {run.run_id: run.status for run in runs} == model.status

    def teardown(self) -> None:
        for store in getattr(self, "stores", {}).values():
            store.close().result()


def _check(make: Any, examples: int) -> None:
    machine = type("Machine", (StoreMachine,), {"make": staticmethod(make)})
    quiet = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, database=None, derandomize=examples < 100,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=quiet)


def _sqlite(examples: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        _check(lambda: SQLiteStore(Path(folder) / "sessions.db"), examples)


def _postgres(server: Postgres, examples: int) -> None:
    from quiesce.sessions.stores.postgres import PostgresStore

    url = server.new_database()
    _check(lambda: PostgresStore(url), examples)


def test_memory() -> None:
    from quiesce.sessions.stores.memory import MemoryStore

    shared: list[MemoryStore] = []

    def make() -> MemoryStore:
        if len(shared) % 2 == 0:
            shared.append(MemoryStore())
        else:
            shared.append(shared[-1])
        return shared[-1]

    _check(make, 40)


def test_sqlite() -> None:
    _sqlite(25)


def test_postgres(postgres: Postgres) -> None:
    _postgres(postgres, 10)


@pytest.mark.proof
def test_sqlite_at_length() -> None:
    _sqlite(1000)


@pytest.mark.proof
def test_postgres_at_length(postgres: Postgres) -> None:
    _postgres(postgres, 500)
