"""Every order of what can happen between runs and a store that fails: nothing seen is lost, nothing is overwritten."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import run_virtual
from quiesce.testing.virtual_time import VirtualLoop

from .conftest import Postgres
from .faulty_store import FATES, Fate
from .world import World

pytestmark = pytest.mark.promise("P3", "P9")

# How many steps the long programmes take, with each store.
STEPS = int(os.environ.get("QUIESCE_MODEL_STEPS", "100000"))

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


async def play(order: Iterable[str], mode: str) -> None:
    world = World(MemoryStore(clock=asyncio.get_running_loop().time), on_store_failure=mode)
    try:
        for action in order:
            await ACTIONS[action](world)
            await world.look()
        await world.check()
    finally:
        await world.close()


def play_all(orders: Iterable[tuple[str, ...]], mode: str) -> int:
    count = 0
    for count, order in enumerate(orders, 1):
        try:
            run_virtual(play(order, mode))
        except BaseException as error:
            error.add_note(f"{mode}: {' '.join(order)}")
            raise
    return count


def orders_of(length: int) -> Iterable[tuple[str, ...]]:
    """All that begin with a write: without one there is nothing to go wrong."""
    for first in ("word", "fails", "unheard", "late", "lock"):
        for rest in itertools.product(ACTIONS, repeat=length - 1):
            yield (first, *rest)


@pytest.mark.parametrize("mode", ["stop", "continue"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_all_orders(mode: str, length: int) -> None:
    assert play_all(orders_of(length), mode) == 5 * 10 ** (length - 1)


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["stop", "continue"])
@pytest.mark.parametrize("first", ["word", "fails", "unheard", "late", "lock"])
def test_all_orders_of_five(mode: str, first: str) -> None:
    for length in (4, 5):
        play_all((order for order in orders_of(length) if order[0] == first), mode)


# --- At random, with the stores that people use ----------------------------------------------------------------------


class Orders(RuleBasedStateMachine):
    """A world in virtual time, in front of a real store."""

    inner: Any = None
    names = itertools.count()
    fates = strategies.sampled_from(FATES)

    @initialize(mode=strategies.sampled_from(["stop", "continue"]))
    def begin(self, mode: str) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.world = World(self.inner, name=f"s{next(self.names)}", on_store_failure=mode)

    def do(self, action: Awaitable[None]) -> None:
        async def act() -> None:
            await action

        self.runner.run(act())

    @rule()
    def word(self) -> None:
        self.do(self.world.say())

    @rule(fate=fates)
    def word_with_a_fate(self, fate: Fate) -> None:
        self.do(self.world.say(fate))

    @rule(backwards=strategies.booleans())
    def land(self, backwards: bool) -> None:
        self.do(self.world.land(backwards=backwards))

    @rule()
    def lock(self) -> None:
        self.do(self.world.lock())

    @rule()
    def wait(self) -> None:
        self.do(self.world.wait())

    @rule()
    def stop(self) -> None:
        self.do(self.world.stop())

    @rule()
    def end(self) -> None:
        self.do(self.world.end())

    @rule()
    def crash(self) -> None:
        self.do(self.world.crash())

    @rule()
    def recover(self) -> None:
        self.do(self.world.recover())

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
            self.do(self.world.close())
            self.runner.close()


def _search(inner: SessionStore, steps: int) -> None:
    machine = type("Machine", (Orders,), {"inner": inner})
    length = 20
    chosen = settings(
        max_examples=max(1, steps // length), stateful_step_count=length, deadline=None, database=None,
        derandomize=steps < 1000, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    try:
        run_state_machine_as_test(machine, settings=chosen)
    finally:
        inner.close().result()


def _sqlite(steps: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        _search(SQLiteStore(Path(folder) / "sessions.db"), steps)


def _postgres(server: Postgres, steps: int) -> None:
    from quiesce.sessions.stores.postgres import PostgresStore

    _search(PostgresStore(server.new_database()), steps)


def test_memory_at_random() -> None:
    _search(MemoryStore(), 600)


def test_sqlite_at_random() -> None:
    _sqlite(200)


def test_postgres_at_random(postgres: Postgres) -> None:
    _postgres(postgres, 200)


@pytest.mark.proof
def test_sqlite_at_length() -> None:
    _sqlite(STEPS)


@pytest.mark.proof
def test_postgres_at_length(postgres: Postgres) -> None:
    _postgres(postgres, STEPS)
