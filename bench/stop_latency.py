"""From `run.cancel()` in another thread to the run's end, in real time, in every state that waits."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from quiesce import Agent, Run, tool
from quiesce.errors import RateLimited
from quiesce.events import Delta
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, Fail, Say, ScriptedModel, Stall
from quiesce.phases import Phase

TRIALS = 200


@tool
async def sleeping() -> str:
    """Sleep."""
    await asyncio.sleep(60)
    return "slept"


def _streaming() -> Agent:
    return Agent(ScriptedModel(Say("word " * 10_000, pause=0.0005)))


def _stalled() -> Agent:
    return Agent(ScriptedModel([Say("Well"), Stall()]))


def _not_answering() -> Agent:
    return Agent(_SilentModel())


def _backing_off() -> Agent:
    return Agent(ScriptedModel(Fail(RateLimited("slow down", retry_after=60))))


def _tool_sleeps() -> Agent:
    return Agent(ScriptedModel([Call("sleeping")]), tools=[sleeping])


class _SilentModel(ScriptedModel):
    """Takes the request and does not even begin to answer."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        await asyncio.sleep(60)
        async with super().stream(request) as deltas:
            yield deltas


STATES: dict[str, tuple[Callable[[], Agent], Phase]] = {
    "streaming": (_streaming, Phase.STREAMING),
    "stalled": (_stalled, Phase.STREAMING),
    "not yet answering": (_not_answering, Phase.CALLING),
    "backing off": (_backing_off, Phase.BACKING_OFF),
    "an async tool sleeps": (_tool_sleeps, Phase.ACTING),
}


async def _trial(make: Callable[[], Agent], phase: Phase) -> float:
    run = make().start("go")
    while run.phase is not phase:
        await asyncio.sleep(0)
    await asyncio.sleep(0.002)
    asked: list[float] = []
    thread = threading.Thread(target=_cancel, args=(run, asked))
    thread.start()
    await run.stopped()
    at_rest = time.perf_counter()
    thread.join()
    return at_rest - asked[0]


def _cancel(run: Run, asked: list[float]) -> None:
    asked.append(time.perf_counter())
    run.cancel("bench")


def main() -> None:
    print(f"stop from another thread to the run's end, {TRIALS} trials each (target: median under 5 ms)")
    for name, (make, phase) in STATES.items():

        async def trials(make: Callable[[], Agent] = make, phase: Phase = phase) -> list[float]:
            return [await _trial(make, phase) for _ in range(TRIALS)]

        times = sorted(asyncio.run(trials()))
        p99 = times[int(len(times) * 0.99) - 1]
        print(f"  {name:<22} median {statistics.median(times) * 1e3:6.2f} ms   p99 {p99 * 1e3:6.2f} ms")


if __name__ == "__main__":
    main()
