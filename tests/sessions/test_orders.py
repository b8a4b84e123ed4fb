"""Every order of what can happen between runs and a store that fails: nothing seen is lost, nothing is overwritten."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, seed, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores import postgres_connection, postgres_database, sqlite_file
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import run_virtual, virtual_time
from quiesce.testing.virtual_time import VirtualLoop

from ..support.cut_proxy import CutProxy
from ..support.lengths import proof_length
from .conftest import Postgres
from .faulty_store import FATES, Fate
from .world import World

pytestmark = pytest.mark.promise("P3", "P9")

# How many steps the long programmes take, with each store, and what the steps follow from.
STEPS = int(proof_length("MODEL_STEPS", 10_000, 100_000))
SEED = int(os.environ.get("QUIESCE_MODEL_SEED", "1"))

ACTIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    "word": lambda world: world.say(),
    "fails": lambda world: world.say("fails"),
    "unheard": lambda world: world.say("lands unheard"),
    "late": lambda world: world.say("late"),
    "land": lambda world: world.land(),
    "lock": lambda world: world.lock(),
    "close": lambda world: world.stop(),
    "end": lambda world: world.end(),
    "crash": lambda world: world.crash(),
    "recover": lambda world: world.recover(),
}


# A step that can do nothing is not played: the order without it is shorter, and is played.
USELESS: dict[str, Callable[[World], bool]] = {
    "close": lambda world: world.now.run is None,
    "end": lambda world: world.now.run is None,
    "land": lambda world: not any(process.store.has_pending for process in world.processes),
}


async def play(order: tuple[str, ...], mode: str) -> int | None:
    """Gives the number of steps up to one that does nothing."""
    world = World(MemoryStore(clock=asyncio.get_running_loop().time), on_store_failure=mode)
    try:
        for number, action in enumerate(order, 1):
            if USELESS.get(action, lambda _: False)(world):
                return number
            await ACTIONS[action](world)
            await world.look()
        await world.check()
    finally:
        await world.close()


def play_all(orders: Iterable[tuple[str, ...]], mode: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    useless: tuple[str, ...] = ("none",)
    for order in orders:
        counts["orders"] += 1
        if order[: len(useless)] == useless:
            continue
        try:
            found = run_virtual(play(order, mode))
        except BaseException as error:
            error.add_note(f"{mode}: {' '.join(order)}")
            raise
        if found is None:
            counts["played"] += 1
        else:
            useless = order[:found]
    return counts


def orders_of(length: int) -> Iterable[tuple[str, ...]]:
    """All that begin with a write: without one there is nothing to go wrong."""
    for first in ("word", "fails", "unheard", "late", "lock"):
        for rest in itertools.product(ACTIONS, repeat=length - 1):
            yield (first, *rest)


@pytest.mark.parametrize("mode", ["stop", "continue"])
def test_orders_of_two(mode: str) -> None:
    assert play_all(orders_of(2), mode)["played"] > 30


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["stop", "continue"])
@pytest.mark.parametrize("first", ["word", "fails", "unheard", "late", "lock"])
def test_all_orders_to_five(mode: str, first: str) -> None:
    counts: Counter[str] = Counter()
    for length in range(1, 6):
        counts += play_all((order for order in orders_of(length) if order[0] == first), mode)
    print(f"{mode}, first {first}: {counts['orders']} orders, {counts['played']} played, the rest have a useless step")
    assert counts["orders"] == 11_111


# --- At random, with the stores that people use ----------------------------------------------------------------------


class Place:
    """Where a store is: `used` is the store of the processes, which `disturb` can reach; `inner` is another, intact."""

    def __init__(self, inner: SessionStore, used: SessionStore | None = None, disturb: Any = None) -> None:
        self.inner = inner
        self.used = used or inner
        self.disturb: Callable[[int], AbstractContextManager[object]] = disturb or (lambda _: nullcontext())


class Orders(RuleBasedStateMachine):
    """A world in virtual time, in front of a real store."""

    place: Any = None
    names = itertools.count()
    counts: ClassVar[Counter[str]] = Counter()
    fates = strategies.sampled_from(FATES)

    @initialize(mode=strategies.sampled_from(["stop", "continue"]), disturbed=strategies.sampled_from([0, 0, 0, 1]))
    def begin(self, mode: str, disturbed: int) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        name = f"s{next(self.names)}"
        used = self.place.used if disturbed else self.place.inner
        self.world = World(self.place.inner, name=name, on_store_failure=mode, used=used)

    def do(self, action: Awaitable[None]) -> None:
        async def act() -> None:
            await action

        self.runner.run(act())

    def step(self, action: Awaitable[None]) -> None:
        self.counts["steps"] += 1
        self.do(action)

    @rule()
    def word(self) -> None:
        self.step(self.world.say())

    @rule(fate=fates)
    def word_with_a_fate(self, fate: Fate) -> None:
        self.counts["faults"] += fate != "lands"
        self.step(self.world.say(fate))

    @rule(where=strategies.integers(0, 1500))
    def word_in_a_real_fault(self, where: int) -> None:
        """The file is locked meanwhile, or the connection cut after so many bytes of the answers."""
        self.counts["real faults"] += 1
        with self.place.disturb(where):
            self.step(self.world.say())

    @rule(backwards=strategies.booleans())
    def land(self, backwards: bool) -> None:
        self.step(self.world.land(backwards=backwards))

    @rule()
    def lock(self) -> None:
        self.step(self.world.lock())

    @rule()
    def wait(self) -> None:
        self.step(self.world.wait())

    @rule()
    def stop(self) -> None:
        self.step(self.world.stop())

    @rule()
    def end(self) -> None:
        self.step(self.world.end())

    @rule()
    def crash(self) -> None:
        self.counts["crashes"] += 1
        self.step(self.world.crash())

    @rule()
    def recover(self) -> None:
        self.step(self.world.recover())

    @invariant()
    def nothing_is_overwritten(self) -> None:
        if hasattr(self, "world"):
            self.do(self.world.look())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.do(self.world.check())
        finally:
            self.counts["histories"] += 1
            self.do(self.world.close())
            self.runner.close()


def _search(place: Place, steps: int) -> None:
    """In rounds of up to 100 histories of up to 40 steps, each round with the next seed."""
    counts: Counter[str] = Counter()
    machine: Any = type("Machine", (Orders,), {"place": place, "counts": counts})
    number = SEED
    patch = pytest.MonkeyPatch()
    # On a busy machine a store may take long.
    patch.setattr(virtual_time, "THREAD_TIMEOUT", 100.0)
    patch.setattr(postgres_connection, "CONNECT_TIMEOUT", 60.0)
    patch.setattr(postgres_connection, "STATEMENT_TIMEOUT", 60.0)
    patch.setattr(postgres_database, "IDLE_IN_TRANSACTION", 60.0)
    try:
        while counts["steps"] < steps:
            chosen = settings(
                max_examples=min(100, (steps - counts["steps"]) // 35 + 1), stateful_step_count=40, deadline=None,
                database=None, suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            run_state_machine_as_test(seed(number)(machine), settings=chosen)
            print(f"seeds {SEED} to {number}: {dict(counts)}", flush=True)
            number += 1
    finally:
        patch.undo()
        place.used.close().result()
        place.inner.close().result()


def _sqlite(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_LOCK_TIMEOUT", 0.01)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "sessions.db"

        @contextmanager
        def locked(_: int) -> Iterator[None]:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                yield
                other.execute("ROLLBACK")

        _search(Place(SQLiteStore(path), SQLiteStore(path), locked), steps)


def _postgres(server: Postgres, steps: int) -> None:
    from quiesce.sessions.stores.postgres import PostgresStore

    url = server.new_database()
    proxy = CutProxy(server.socket)
    through = PostgresStore(f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable")

    @contextmanager
    def cut(where: int) -> Iterator[None]:
        proxy.cut(after=where)
        yield

    try:
        _search(Place(PostgresStore(url), through, cut), steps)
        print(f"{proxy.cuts} cuts of the connection")
    finally:
        proxy.close()


def test_a_run_that_is_stopped_while_it_saves_for_an_earlier_one_gives_the_session_back() -> None:
    """Found by the search: the run had let go of the session before its opening failed, and the lease stayed."""

    async def main() -> None:
        world = World(MemoryStore(), on_store_failure="continue")
        await world.say("late and failed")
        await world.lock()
        await world.stop()
        await world.say()
        await world.stop()
        await world.recover()
        await world.check()
        await world.close()

    run_virtual(main())


def test_memory_at_random() -> None:
    _search(Place(MemoryStore()), 200)


def test_sqlite_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    _sqlite(100, monkeypatch)


def test_postgres_at_random(postgres: Postgres) -> None:
    _postgres(postgres, 60)


@pytest.mark.proof
def test_sqlite_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    _sqlite(STEPS, monkeypatch)


@pytest.mark.proof
def test_postgres_at_length(postgres: Postgres) -> None:
    _postgres(postgres, STEPS)
