"""The programme: slots, restarts of the stores, samples, and quiet points at which nothing runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ..sessions.conftest import Postgres
from .agents import Pace, make_agent
from .gauges import Gauges, Sample, kinds
from .slot import Slot, Tally
from .stores import Stores


class Soak:
    """`runs` at a time for `seconds`, with `cpu` of one core; a quiet point every `quiet` seconds."""

    def __init__(
        self, folder: Path, postgres: Postgres | None, *, seed: int, runs: int, seconds: float, cpu: float, quiet: float
    ) -> None:
        self._folder = folder
        self._postgres = postgres
        self._seed = seed
        self._runs = runs
        self._seconds = seconds
        self._cpu = cpu
        self._quiet = quiet
        self._pace = Pace()
        self._pace.scale = runs / 50
        self.tally = Tally()
        self.words: Counter[str] = Counter()
        self.busy: list[Sample] = []
        self.quiet: list[Sample] = []
        self.growth: list[tuple[str, int]] = []
        self._open: asyncio.Event
        self._closing = False

    async def run(self) -> None:
        """From the first run to the last."""
        self._listen()
        print(f"seed {self._seed}, {self._runs} runs at a time, {self._seconds:g} s", flush=True)
        self._open = asyncio.Event()
        self._open.set()
        stores = Stores(self._folder, self._postgres)
        self._agents, model = make_agent(random.Random(self._seed), self._pace)
        slots = [asyncio.create_task(self._fill(number, stores), name=f"slot {number}") for number in range(self._runs)]
        outages = asyncio.create_task(self._restart_stores(stores))
        pacing = asyncio.create_task(self._keep_pace())
        watching = asyncio.create_task(self.tally.watch_loop())
        try:
            await self._measure(slots)
        finally:
            self._closing = True
            self._open.set()
            outages.cancel()
            pacing.cancel()
            watching.cancel()
            for result in await asyncio.gather(*slots, outages, pacing, watching, return_exceptions=True):
                if isinstance(result, Exception):
                    self.tally.found(f"a slot raised {result!r}")
        if model.open_streams:
            self.tally.found(f"{model.open_streams} streams are open")
        self.restarts = dict(stores.done)
        await stores.close()

    # --- What goes on -------------------------------------------------------------------------------------------

    async def _fill(self, number: int, stores: Stores) -> None:
        slot = Slot(number, random.Random(self._seed * 1000 + number), self._agents[0], stores, self._pace, self.tally)
        while not self._closing:
            await self._open.wait()
            if self._closing:
                return
            await slot.next_conversation()
            await slot.one_run()
            await slot.rest()

    async def _restart_stores(self, stores: Stores) -> None:
        dice = random.Random(self._seed + 1)
        while True:
            await asyncio.sleep(dice.uniform(0.2, 1.8) * min(15.0, self._seconds / 6))
            began = time.monotonic()
            try:
                kind = await stores.disturb(dice)
            except Exception as error:  # without it the soak would go on, and show less than it says
                self.tally.found(f"a store could not be restarted: {error!r}")
                continue
            print(f"store: {kind} ({time.monotonic() - began:.1f} s)", flush=True)

    async def _keep_pace(self) -> None:
        began, cpu = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(5)
            now, used = time.monotonic(), time.process_time()
            late = sorted(self.tally.lags)[len(self.tally.lags) * 9 // 10]
            self._pace.adjust((used - cpu) / (now - began), self._cpu, late)
            began, cpu = now, used

    # --- What is measured ---------------------------------------------------------------------------------------

    async def _measure(self, slots: list[asyncio.Task[None]]) -> None:
        gauges, loop = Gauges(), asyncio.get_running_loop()
        end, quiet_at = loop.time() + self._seconds, loop.time() + self._quiet
        first: Counter[str] = Counter()
        while loop.time() < end:
            await asyncio.sleep(min(60.0, self._seconds / 3, max(0.0, end - loop.time())))
            if all(slot.done() for slot in slots):
                return
            self.busy.append(gauges.sample(len(self.tally.active), self._entries()))
            self._report(self.busy[-1])
            if loop.time() >= quiet_at or loop.time() >= end:
                await self._come_to_rest()
                self.quiet.append(gauges.sample(len(self.tally.active), self._entries()))
                print("quiet " + self.quiet[-1].line(), flush=True)
                gc.collect()
                now = kinds()
                self.growth = (now - first).most_common(12) if first else []
                first = first or now
                quiet_at = loop.time() + self._quiet
                self._closing = loop.time() >= end
                self._open.set()

    async def _come_to_rest(self) -> None:
        self._open.clear()
        patience = min(15.0, self._seconds / 10)
        until = time.monotonic() + 300  # on a machine that has no time for this
        while self.tally.active and time.monotonic() < until:
            await asyncio.sleep(0.1)
            if time.monotonic() > until - 300 + patience:
                for run in tuple(self.tally.active):
                    run.cancel("The soak comes to rest.")
        if self.tally.active:
            self.tally.found(f"{len(self.tally.active)} runs did not end: {self.tally.active}")
        await asyncio.sleep(min(3.0, self._seconds / 10))  # for threads and processes that are about to end

    def _entries(self) -> int:
        """The entries of the ledgers that the agents keep."""
        return sum(len(agent.usage.entries) for agent in self._agents)

    def _report(self, sample: Sample) -> None:
        counts = self.tally.counts
        print(
            f"{sample.line()}  pace {self._pace.scale:5.2f}  started {counts['runs']}  ended {counts['ended']}"
            f"  cancelled {counts['end: cancelled']}  steers {counts['steer']}  answers {counts['answers']}"
            f"  wrong {len(self.tally.wrong)}  words {self.words.total()}  lag {self.tally.longest_lag:.2f}",
            flush=True,
        )

    def print_summary(self) -> None:
        """The table at the end."""
        print("\nAt rest:", *(sample.line() for sample in self.quiet), sep="\n")
        slow = sorted(self.tally.latencies)
        if slow:
            parts = [f"{part} % {slow[part * (len(slow) - 1) // 100] * 1000:.0f} ms" for part in (50, 90, 99, 100)]
            print(f"From a stop in mode now or kill to the end, {len(slow)} runs: {', '.join(parts)}")
        print(f"The loop was late by {self.tally.longest_lag:.2f} s at most")
        print("Stores:", self.restarts)
        print("Counts:", dict(sorted(self.tally.counts.items())))
        print("More objects than at the first rest:", self.growth, flush=True)

    # --- Words that nobody should hear --------------------------------------------------------------------------

    def _listen(self) -> None:
        def from_loop(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            self._heard("loop", f"{context.get('message')}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(from_loop)
        sys.unraisablehook = lambda args: self._heard("unraisable", f"{args.exc_value!r} in {args.object!r}")
        threading.excepthook = lambda args: self._heard("thread", f"{args.exc_value!r} in {args.thread}")
        logging.getLogger("asyncio").addHandler(_Listener(self))

    def _heard(self, where: str, what: str) -> None:
        self.words[where] += 1
        print(f"WORD from {where}: {what}", flush=True)

    def heard(self, record: logging.LogRecord) -> None:
        """A warning that asyncio has logged."""
        self._heard(record.name, record.getMessage())


class _Listener(logging.Handler):
    def __init__(self, soak: Soak) -> None:
        super().__init__(logging.WARNING)
        self._soak = soak

    def emit(self, record: logging.LogRecord) -> None:
        self._soak.heard(record)
