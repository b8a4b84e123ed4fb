"""The pictures of docs/performance.md: CPU time over turns, over chunks and over runs at once, beside bare clients.

Everything is measured in one run, in rounds that alternate; a point is the least of its rounds, in which the machine
disturbed least.

    python -m bench.plots [rounds]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from . import provider_chunks, runs_at_once, tool_turns
from ._server import running_server
from ._svg import plot

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
TURNS = (10, 50, 100, 200)
CHUNKS = (500, 2_000, 5_000)
RUNS = (50, 200, 500)
Series = dict[str, list[float]]


def over_turns(rounds: int) -> Series:
    """Milliseconds per turn with a tool."""
    series: Series = {}
    with running_server() as url:
        for turns in TURNS:
            for name, spent in asyncio.run(tool_turns.measure(url, turns, rounds)).items():
                series.setdefault(name, []).append(min(cpu for cpu, _ in spent) / turns * 1e3)
    return series


def over_chunks(rounds: int) -> Series:
    """Milliseconds for an answer of so many chunks."""
    series: Series = {"httpx2 bytes, msgspec": [], "quiesce": []}
    with running_server() as url:
        for chunks in CHUNKS:
            bare, agent, _ = asyncio.run(provider_chunks.measure(url, chunks, rounds))
            series["httpx2 bytes, msgspec"].append(min(bare) * 1e3)
            series["quiesce"].append(min(agent) * 1e3)
    return series


def over_runs(rounds: int) -> Series:
    """Seconds for so many runs at once."""
    series: Series = {}
    for runs in RUNS:
        for name, rows in runs_at_once.measure(runs, rounds).items():
            series.setdefault(name, []).append(min(row.cpu for row in rows))
    return series


def main(rounds: int = 3) -> None:
    """Measure, and write the pictures."""
    pictures = {
        "turns": ("A turn with a tool", "turns of the run", "ms of CPU per turn", TURNS, over_turns(rounds)),
        "chunks": ("An answer", "chunks of the answer", "ms of CPU", CHUNKS, over_chunks(rounds)),
        "runs": ("Runs at once, 50 chunks each", "runs", "seconds of CPU", RUNS, over_runs(rounds)),
    }
    for name, (title, across, up, numbers, series) in pictures.items():
        (PICTURES / f"performance-{name}.svg").write_text(plot(title, across, up, numbers, series))
        print(title)
        for client, values in series.items():
            print(f"  {client:22}", *(f"{number}: {value:.2f}" for number, value in zip(numbers, values, strict=True)))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
