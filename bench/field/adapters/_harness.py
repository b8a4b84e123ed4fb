"""An adapter's whole program: `main`.

It is given the server's address, a scenario and the number of trials, and prints one JSON line for each trial. It runs
in the framework's own environment, so that it can use only the standard library, httpx2 and msgspec.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

from .. import prompts
from . import _cost, _many, _points
from ._subject import Subject
from ._trial import Trial

Found = AsyncIterator[dict[str, Any]]


async def _stops(make: type[Subject], server: str, trials: int, scenario: str) -> Found:
    for number in range(trials + 1):
        trial = Trial(make, server, f"{make.__name__}-{scenario}-{number}")
        try:
            if scenario == "tools":
                found = await trial.stop_in_tool()
            else:
                found = await trial.stop_at_words(prompts.STALLED if scenario == "stalled" else prompts.FLOWING)
        finally:
            trial.tools.close()
        if number:  # the first one warms up
            yield found


SCENARIOS: dict[str, Callable[[type[Subject], str, int], Found]] = {
    "stalled": lambda make, server, trials: _stops(make, server, trials, "stalled"),
    "flowing": lambda make, server, trials: _stops(make, server, trials, "flowing"),
    "tools": lambda make, server, trials: _stops(make, server, trials, "tools"),
    "points": _points.points,
    "many": _many.many,
    "chunks": _cost.chunks,
    "turns": _cost.turns,
    "imports": _cost.imports,
}

_out = sys.stdout


def _print(found: dict[str, Any]) -> None:
    print(json.dumps(found), file=_out, flush=True)


async def _run(found: Found) -> None:
    async for each in found:
        _print(each)


def main(make: type[Subject]) -> None:
    """An adapter's whole program."""
    server, scenario, trials = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _print({"versions": {name: importlib.metadata.version(name) for name in make.packages}, "how": make.stopped_with})
    # What a framework prints is not the result.
    with contextlib.redirect_stdout(sys.stderr), asyncio.Runner(loop_factory=_points.CountingLoop) as runner:
        runner.run(_run(SCENARIOS[scenario](make, server, int(trials))))
