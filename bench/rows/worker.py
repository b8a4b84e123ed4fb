"""The process of one client: `python -m bench.rows.worker CLIENT WIRE`, in the client's own environment.

It does what the lines of its input say, one after the other, and prints what each took as a line of JSON.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import contextlib
import cProfile
import importlib
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .clients._base import Client, Wire
from .profiled import by_package

_READ_SIZE = 256 * 1024  # asyncio's own
_out = sys.stdout


def resident() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def _timed(work: Callable[[], Awaitable[Any]]) -> tuple[dict[str, float], Any]:
    cpu, wall = time.process_time(), time.perf_counter()
    found = await work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}, found


class Worker:
    """Does what it is asked. Each method is one kind of task; its parameters are those of the line."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._profile: cProfile.Profile | None = None

    async def run(self, kind: str, turns: int = 1, read_size: int = 0) -> dict[str, Any]:
        """One run. `read_size` is the most that one read of a socket gives."""
        asyncio.selector_events._SelectorTransport.max_size = read_size or _READ_SIZE  # type: ignore[attr-defined]
        spent, text = await _timed(lambda: self._profiled(self._client.run(kind, turns)))
        return {**spent, "words": len(text.split())}

    async def stop(self, kind: str) -> dict[str, Any]:
        """From a stop to its return."""
        stop = await self._client.begin(kind)
        spent, _ = await _timed(lambda: self._profiled(stop()))
        return dict(spent)

    async def at_once(self, kind: str, runs: int) -> dict[str, Any]:
        """Runs at the same time, and the memory of each while all are under way."""
        before, peak = resident(), 0
        under_way = asyncio.ensure_future(_timed(lambda: self._client.at_once(kind, runs)))
        while not under_way.done():
            await asyncio.wait((under_way,), timeout=0.1)
            peak = max(peak, resident())
        spent, texts = under_way.result()
        return {**spent, "memory": (peak - before) / runs, "words": min(len(text.split()) for text in texts)}

    async def _profiled(self, work: Awaitable[Any]) -> Any:
        if self._profile is None:
            return await work
        self._profile.enable()
        try:
            return await work
        finally:
            self._profile.disable()

    async def start_profile(self) -> dict[str, Any]:
        """From here on, runs and stops are profiled."""
        self._profile = cProfile.Profile()
        return {}

    async def end_profile(self) -> dict[str, Any]:
        """Seconds and calls by package."""
        assert self._profile is not None
        found, self._profile = by_package(self._profile), None
        return found


async def _serve(name: str, wire: Wire) -> None:
    client: Client = importlib.import_module(f"bench.rows.clients.{name}").client(wire)
    await client.open()
    worker = Worker(client)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        task = json.loads(line)
        try:
            found = await getattr(worker, task.pop("do"))(**task)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), file=_out, flush=True)


def main() -> None:
    """The whole program."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    name, wire = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):  # what a framework prints is no result
        asyncio.run(_serve(name, Wire(**json.loads(wire))))


if __name__ == "__main__":
    main()
