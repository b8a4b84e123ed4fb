"""What `quiesce serve` costs: streams per core, runs per second, and memory per idle reader; with uvloop and without.

The server is a process of its own, and its CPU time is read from outside, so that the clients do not count. Each run
streams a word every 20 ms to one reader. As many streams as take all CPU time of a core are where it saturates.

    python -m bench.serving [streams]
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ._serving_agent import EVERY
from .http_stop import Wire

WORDS, RUNS, READERS = 50, 100, 200
_WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None; from quiesce.cli import main; sys.exit(main())"
_AS_INSTALLED = "import sys; from quiesce.cli import main; sys.exit(main())"


class Served:
    """A server in a process of its own."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self.port = port

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Kilobytes that it holds."""
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


@asynccontextmanager
async def server(program: str) -> AsyncGenerator[Served]:
    """A server that runs `bench._serving_agent`."""
    options = ["serve", "bench._serving_agent:agent", "--port", "0", "--max-runs", "5000", "--max-streams", "5000"]
    command = [sys.executable, "-c", program, *options]
    child = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    try:
        assert child.stderr is not None
        async for line in child.stderr:
            if b"running on" in line:
                port = int(line.split(b"http://")[1].split()[0].strip(b"/").rsplit(b":", 1)[1])
                break
        else:
            raise RuntimeError("the server did not start")
        reading = asyncio.ensure_future(child.stderr.read())  # so that its log does not fill the pipe
        yield Served(child.pid, port)
        reading.cancel()
    finally:
        with suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


async def _begin(wire: Wire, prompt: str) -> str:
    wire.send("POST", "/runs", json.dumps({"prompt": prompt}).encode())
    return json.loads(await wire.answer())["run"]["id"]


async def streams(served: Served, count: int) -> tuple[float, float]:
    """Microseconds of CPU per event that a reader gets, and the share of a core that so many streams take."""
    async with Wire(served.port) as wire:
        before, began = served.cpu(), time.perf_counter()
        beginning = asyncio.Lock()

        async def one() -> None:
            async with beginning:
                run_id = await _begin(wire, f"words {WORDS}")
            async with Wire(served.port) as events:
                events.send("GET", f"/runs/{run_id}/events")
                await events.until(b"run_ended")

        await asyncio.gather(*(one() for _ in range(count)))
        cpu, wall = served.cpu() - before, time.perf_counter() - began
    return cpu / (count * WORDS) * 1e6, cpu / wall


async def runs(served: Served) -> float:
    """Milliseconds of CPU for one run that answers at once, with its request and its reader."""
    async with Wire(served.port) as wire:
        before = served.cpu()
        for _ in range(RUNS):
            run_id = await _begin(wire, "short")
            async with Wire(served.port) as events:
                events.send("GET", f"/runs/{run_id}/events")
                await events.until(b"run_ended")
        return (served.cpu() - before) / RUNS * 1e3


async def readers(served: Served) -> float:
    """Kilobytes per reader of a run that says nothing for now."""
    async with Wire(served.port) as wire:
        run_id = await _begin(wire, "stall")
        before, waiting = served.memory(), [Wire(served.port) for _ in range(READERS)]
        for each in waiting:
            await each.__aenter__()
            each.send("GET", f"/runs/{run_id}/events")
            await each.until(b"text")
        each_one = (served.memory() - before) / READERS
        for each in waiting:
            await each.__aexit__()
        wire.send("POST", f"/runs/{run_id}/cancel", b"{}")
        await wire.answer()
        return each_one


async def measure(streams_at_once: int) -> None:
    """Print the figures."""
    servers = {"asyncio": _WITHOUT_UVLOOP}
    if importlib.util.find_spec("uvloop"):
        servers["uvloop"] = _AS_INSTALLED
    for name, program in servers.items():
        async with server(program) as served:
            await runs(served)  # what is imported first does not count
            per_run = min([await runs(served) for _ in range(3)])
            per_event, share = min([await streams(served, streams_at_once) for _ in range(2)])
            kept = await readers(served)
        per_core = EVERY / (per_event / 1e6)
        print(f"{name}: {1000 / per_run:6.0f} runs per CPU second ({per_run:.2f} ms each)")
        print(f"  {per_event:6.1f} us per event: a core saturates at {per_core:.0f} streams of {1 / EVERY:.0f} words/s")
        print(f"  ({streams_at_once} streams took {share:.0%} of a core); {kept:.1f} KB per idle reader")


def main(streams_at_once: int = 100) -> None:
    """Print the figures."""
    asyncio.run(measure(streams_at_once))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
