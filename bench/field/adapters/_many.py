"""Fifty runs in one process, all stopped at once while their streams are silent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from .. import prompts
from ._subject import Subject
from ._trial import SEEN, TOO_LATE, Trial

RUNS = 50


async def many(make: type[Subject], server: str, rounds: int) -> AsyncIterator[dict[str, Any]]:
    for number in range(rounds + 1):
        trials = [Trial(make, server, f"{make.__name__}-many-{number}-{each}") for each in range(RUNS)]
        try:
            found = await _stop_all(trials)
        finally:
            for trial in trials:
                trial.tools.close()
        if number:
            yield found


async def _stop_all(trials: list[Trial]) -> dict[str, Any]:
    before, began = _resident(), time.process_time()
    runs = [asyncio.create_task(trial.run_to_its_end(prompts.STALLED)) for trial in trials]
    for trial in trials:
        await asyncio.to_thread(trial.wait_for_words)
    await asyncio.sleep(SEEN)
    grown = _resident() - before
    await asyncio.to_thread(_stop_each, trials, asyncio.get_running_loop())
    asked = trials[0].asked
    await asyncio.gather(*runs)
    seconds = time.process_time() - began
    requests = [(await trial.report(max(0.0, asked + TOO_LATE - time.monotonic())))[0] for trial in trials]
    closed = [each["closed"] for each in requests if each["closed"] and each["closed"] - asked <= TOO_LATE]
    returned = [trial.returned for trial in trials if trial.returned is not None]
    return {
        "close_ms": (max(closed) - asked) * 1000 if len(closed) == RUNS else None,
        "return_ms": (max(returned) - asked) * 1000 if len(returned) == RUNS else None,
        "run_kb": grown / RUNS / 1000,
        "run_cpu_ms": seconds / RUNS * 1000,
    }


def _stop_each(trials: list[Trial], loop: asyncio.AbstractEventLoop) -> None:
    for trial in trials:
        trial.ask(loop)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
