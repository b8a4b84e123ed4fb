"""The slots of the soak in virtual time, with a store in memory that fails: the same seed is the same history."""

from __future__ import annotations

import asyncio
import os
import random
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing.virtual_time import run_virtual

from ..sessions.faulty_store import FATES, FaultyStore, pass_on
from ..support.lengths import proof_length
from .agents import Pace, make_agent
from .slot import Slot, Tally

pytestmark = pytest.mark.promise("P2", "P9")

SEED = int(os.environ.get("QUIESCE_SOAK_SEED", "1"))
HISTORIES = int(proof_length("SOAK_HISTORIES", 1000, 3000))
RUNS = 40


class SlowStore(MemoryStore):
    """A store whose answer to a run that opens a session comes late, now and then."""

    def __init__(self, dice: random.Random) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(clock=self._loop.time)
        self._dice = dice

    def acquire(self, *args: Any, **options: Any) -> Future[Any]:
        if self._dice.random() < 0.6:
            return super().acquire(*args, **options)
        answer: Future[Any] = Future()

        def acquire() -> None:
            pass_on(super(SlowStore, self).acquire(*args, **options), answer)

        self._loop.call_later(self._dice.expovariate(0.2), acquire)
        return answer


class FaultyStores:
    """One store for all sessions, which loses and delays writes."""

    def __init__(self, dice: random.Random) -> None:
        self.generation = 0
        self.store = FaultyStore(SlowStore(dice))
        self.sqlite: Any = self.store
        self.shared: SessionStore | None = None

    async def disturb(self, dice: random.Random) -> None:
        """Now and then a write or a few seconds of writes go wrong; later everything lands."""
        while True:
            await asyncio.sleep(dice.expovariate(0.1))
            self.store.fates.append(dice.choice(FATES))
            if dice.random() < 0.3:
                self.store.usual = "fails"
                await asyncio.sleep(dice.uniform(0.1, 15))
                self.store.usual = "lands"
            self.land(backwards=dice.random() < 0.3)

    def land(self, *, backwards: bool = False) -> None:
        self.store.land(backwards=backwards)
        self.store.answer()


async def history(seed: int) -> Tally:
    """Two slots with runs one after the other, and sometimes at once, in their conversations."""
    stores, pace, tally = FaultyStores(random.Random(seed + 2)), Pace(), Tally()
    (agent, *_), model = make_agent(random.Random(seed), pace, threads=False)
    disturbing = asyncio.create_task(stores.disturb(random.Random(seed + 1)))

    async def fill(number: int) -> None:
        slot = Slot(number, random.Random(seed * 10 + number), agent, stores, pace, tally, threads=False, second=0.4)
        for _ in range(RUNS // 2):
            await slot.next_conversation()
            await slot.one_run()
            await slot.rest()

    try:
        await asyncio.gather(fill(1), fill(2))
    finally:
        disturbing.cancel()
        with suppress(asyncio.CancelledError):
            await disturbing
    assert model.open_streams == 0
    return tally


def search(first: int, count: int) -> None:
    runs = 0
    for seed in range(first, first + count):
        tally = run_virtual(history(seed))
        assert tally.wrong == [], f"seed {seed}"
        assert tally.counts["ended"] == tally.counts["runs"], f"seed {seed}: {tally.counts}"
        runs += tally.counts["runs"]
    print(f"seeds {first} to {first + count - 1}: {runs} runs")


def test_a_few_histories() -> None:
    search(SEED, 10)


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_many_histories() -> None:
    search(SEED, HISTORIES)
