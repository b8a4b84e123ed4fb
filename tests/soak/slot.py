"""One of the places in which runs follow each other: it starts them, disturbs them, and checks how they ended."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Any, Protocol

from quiesce import Agent, Approve, CancellationToken, Conversation, Deny, RunResult, Session
from quiesce.cancellation import Mode
from quiesce.conversation.validity import faults
from quiesce.errors import ConversationBusy, InterruptError, ModelError, NothingToContinue, RunError, StoreError
from quiesce.events import Event, RunEnded
from quiesce.interrupts import Interrupt
from quiesce.run.handle import Run
from quiesce.sessions.store import SessionStore

from .agents import Pace

MODES = tuple(Mode)
# Seconds from a stop in mode `now` or `kill` to the end: a tool's grace, and the wait for a store that is away.
SLOW = 3.5
# One token above many runs: what is left in it of those that ended would be seen.
ROOT = CancellationToken()


class Tally:
    """What was counted, and what was wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.latencies: list[float] = []
        self.active: set[Run[Any]] = set()
        self.lags: deque[float] = deque([0.0], maxlen=50)
        self.longest_lag = 0.0

    async def watch_loop(self) -> None:
        """Note how late the loop is: what it is late, every stop is too."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.1)
            self.lags.append(time.monotonic() - began - 0.1)
            self.longest_lag = max(self.longest_lag, self.lags[-1])

    def found(self, what: str) -> None:
        """Note a violation."""
        self.wrong.append(what)
        print(f"VIOLATION: {what}", flush=True)


class SlotStores(Protocol):
    """The stores in which a slot has its sessions."""

    generation: int
    sqlite: SessionStore
    shared: SessionStore | None


class Slot:
    """Runs one after the other, in conversations that last for about ten runs."""

    def __init__(
        self,
        number: int,
        dice: random.Random,
        agent: Agent,
        stores: SlotStores,
        pace: Pace,
        tally: Tally,
        *,
        threads: bool = True,
        second: float = 0.1,
    ) -> None:
        """`second` is how often a second prompt comes while a run goes on."""
        self._dice = dice
        self._threads = threads
        self._second = second
        self._number = number
        self._agent = agent
        self._stores = stores
        self._pace = pace
        self._tally = tally
        self._conversations = 0
        self._conversation: Conversation = Conversation()
        self._kind = "memory"
        self._generation = 0
        self._runs_left = 0
        self._asked: dict[str, float] = {}
        self._history: deque[str] = deque(maxlen=30)
        self._background: set[asyncio.Task[None]] = set()

    # --- Conversations ------------------------------------------------------------------------------------------

    async def next_conversation(self) -> None:
        """Go on with the conversation, in this process or as another one would, or begin the next."""
        if self._runs_left <= 0:
            await self._leave()
            self._conversations += 1
            self._runs_left = self._dice.randint(3, 15)
            kinds = ["memory", "sqlite", "sqlite", "sqlite"] + ["postgres"] * 2 * (self._stores.shared is not None)
            self._kind = self._dice.choice(kinds)
            self._open()
        elif self._kind != "memory":
            replaced = self._kind == "sqlite" and self._generation != self._stores.generation
            if replaced or self._dice.random() < 0.2:
                self._open()
        self._runs_left -= 1

    def _open(self) -> None:
        self._generation = self._stores.generation
        if self._kind == "memory":
            self._conversation = Conversation()
            return
        store = self._stores.sqlite if self._kind == "sqlite" else self._stores.shared
        failure = "continue" if self._dice.random() < 0.2 else "stop"
        name = f"slot-{self._number}-{self._conversations}"
        self._conversation = Session(name, store, wait=5, lease=10, on_store_failure=failure)
        self._history.append(f"opened {name} in {self._kind}, {failure}")

    async def _leave(self) -> None:
        if isinstance(self._conversation, Session):
            stored = Session(self._conversation.name, self._conversation.store)
            try:
                wrong = faults(await stored.load())
            except StoreError:
                return
            if wrong or stored.damage:
                self._tally.found("\n  ".join((f"{stored.name}: {wrong} {stored.damage}", *self._history)))
            with suppress(StoreError):
                await asyncio.wrap_future(stored.store.delete(stored.name))

    # --- Runs ---------------------------------------------------------------------------------------------------

    async def one_run(self, *, deep: bool = False) -> None:
        """Start a run in one of the ways there are, disturb it, wait for it, and check its end."""
        ended: list[float] = []
        try:
            run = self._start(on_busy=self._dice.choice(("queue", "steer", "cancel_previous", "refuse")))
        except (ConversationBusy, NothingToContinue, InterruptError) as refused:
            self._tally.counts[f"refused: {type(refused).__name__}"] += 1
            return

        def note(event: Event) -> None:
            if isinstance(event, RunEnded):
                ended.append(time.monotonic())

        run.tap(note)
        self._history.append(f"{run.id} started{' meanwhile' if deep else ''}")
        self._tally.counts["runs"] += 1
        self._tally.active.add(run)
        others = [asyncio.create_task(self._disturb(run))]
        if not deep and self._dice.random() < self._second:
            others.append(asyncio.create_task(self._later(run)))
        try:
            await self._wait(run)
        finally:
            self._tally.active.discard(run)
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await run.stopped()
        await asyncio.sleep(0)
        self._check(run, ended)

    def _start(self, **options: Any) -> Run[Any]:
        options |= {"conversation": self._conversation, "timeout": 5 + 10 * self._pace.scale}
        if self._dice.random() < 0.05:
            options["timeout"] = self._dice.uniform(0.05, 3)
        if self._dice.random() < 0.05:
            options["token"] = ROOT.after(self._dice.uniform(0.05, 3))
        asked = self._conversation.interrupts
        if asked and self._dice.random() < 0.8:
            self._tally.counts["answers"] += 1
            return self._agent.start_answer(self._answers(asked), **options)
        if self._conversation.messages and not asked and self._dice.random() < 0.3:
            self._tally.counts["continued"] += 1
            return self._agent.start_continue(**options)
        return self._agent.start("Go on, please.", **options)

    def _answers(self, asked: tuple[Interrupt, ...]) -> dict[str, Any]:
        some = self._dice.sample(asked, self._dice.randint(1, len(asked)))
        return {
            each.id: self._dice.choice((True, False, Approve(), Deny("No."))) if each.kind == "approval" else "this one"
            for each in some
            if each.kind != "limit"
        } or {each.id: True for each in asked}

    async def _later(self, run: Run[Any]) -> None:
        """A second prompt, while the first run holds the conversation."""
        await asyncio.sleep(self._dice.expovariate(1.0) * self._pace.scale)
        if not run.done:
            self._tally.counts["second prompts"] += 1
            task = asyncio.create_task(self.one_run(deep=True))
            self._background.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._tally.found(f"a second prompt raised {task.exception()!r}")

    async def rest(self) -> None:
        """Wait for second prompts that are still under way."""
        while self._background:
            await asyncio.wait(self._background)

    # --- Disturbances -------------------------------------------------------------------------------------------

    async def _disturb(self, run: Run[Any]) -> None:
        dice = self._dice
        while not run.done:
            await asyncio.sleep(dice.expovariate(0.35) * self._pace.scale)
            what = dice.choices(
                ("stop", "thread", "steer", "enqueue", "pause", "child", "tool", "undo"), (6, 2, 3, 2, 1, 2, 2, 2)
            )[0]
            if run.done:
                return
            self._tally.counts[what] += 1
            self._history.append(f"{run.id} {what}")
            match what:
                case "stop":
                    self._stop(run, dice.choice(MODES))
                case "thread" if self._threads:
                    await asyncio.to_thread(self._stop, run, dice.choice(MODES))
                case "thread":
                    self._stop(run, dice.choice(MODES))
                case "steer":
                    run.steer("Another way.", mode=dice.choice(MODES))
                case "enqueue":
                    run.enqueue("And this.")
                case "pause":
                    run.pause()
                    await asyncio.sleep(dice.random() * self._pace.scale)
                    run.resume()
                case "child":
                    for child in run.children:
                        child.cancel("soak", mode=dice.choice(MODES))
                case "tool":
                    for call in _running_calls(run):
                        run.cancel_tool(call, "soak")
                case _:
                    run.cancel("soak", undo=True)

    def _stop(self, run: Run[Any], mode: Mode) -> None:
        if mode >= Mode.NOW:
            self._asked.setdefault(run.id, time.monotonic())
        run.cancel("soak", mode=mode)

    async def _wait(self, run: Run[Any]) -> None:
        """Wait for the end in one of the ways there are. None may raise anything but the run's own failure."""
        way = self._dice.choices(("await", "events", "leave", "cancel", "thread", "text"), (4, 4, 1, 1, 0.5, 1))[0]
        self._tally.counts[f"by {way}"] += 1
        with suppress(RunError, InterruptError, NothingToContinue):
            match way:
                case "await":
                    await run
                case "events":
                    async for _ in run:
                        pass
                case "leave":
                    async with run:
                        async for _ in run:
                            if self._dice.random() < 0.1:
                                break
                case "cancel":
                    await self._cancel_the_wait(run)
                case "thread" if self._threads:
                    await asyncio.to_thread(run.wait)
                case _:
                    async for _ in run.text_stream():
                        pass

    async def _cancel_the_wait(self, run: Run[Any]) -> None:
        async def wait() -> RunResult[Any]:
            return await run

        waiting = asyncio.create_task(wait())
        await asyncio.wait([waiting], timeout=self._dice.expovariate(0.5) * self._pace.scale)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    # --- The end ------------------------------------------------------------------------------------------------

    def _check(self, run: Run[Any], ended: list[float]) -> None:
        tally, result = self._tally, run.inspect().result
        if not run.done or result is None:
            tally.found(f"{run} did not end")
            return
        tally.counts["ended"] += 1
        tally.counts[f"end: {result.stop_reason}"] += 1
        if len(ended) != 1 and result.steered is None:
            tally.found(f"{run} has {len(ended)} ends: {result.stop_reason}")
        kinds = " ".join(type(message).__name__[0] for message in result.messages)
        self._history.append(
            f"{run.id} ended: {result.stop_reason} {result.error!r} saved={result.receipt.saved} {kinds}"
        )
        wrong = faults(result.messages)
        if wrong:
            tally.found("\n  ".join((f"{run}: {wrong}", *self._history, *map(repr, result.messages))))
        if (result.stop_reason == "cancelled") != (result.receipt.stop_reason == "cancelled"):
            tally.found(f"{run} is {result.stop_reason}, its receipt says {result.receipt.stop_reason}")
        if result.stop_reason == "cancelled" and result.receipt.cause is None:
            tally.found(f"{run} was stopped by nothing")
        if result.error is not None:
            tally.counts[f"error: {type(result.error).__name__}"] += 1
            if not isinstance(result.error, StoreError | ModelError | InterruptError | NothingToContinue):
                tally.found(f"{run} failed with {result.error!r}")
        for what in result.receipt.still_running:
            tally.counts[f"still running: {what.split()[0]}"] += 1
        asked = self._asked.pop(run.id, None)
        if asked is not None and ended:
            seconds = ended[0] - asked
            tally.latencies.append(seconds)
            if seconds > SLOW:
                print(f"slow: {seconds:.1f} s, {self._kind}, lag {max(tally.lags):.1f}, {result.receipt}", flush=True)


def _running_calls(run: Run[Any]) -> list[str]:
    return [call.id for message in run.messages[-1:] for call in getattr(message, "tool_calls", ())]
