"""The ratios to bare code that a change must not make worse: a chunk, a turn with a tool, a stop over HTTP.

Each is the median of several rounds in one process that alternate with the bare client's, in CPU time, so that a busy
machine does not decide. A stop over HTTP is wall time, beside a request to a bare server: the fastest tenth of each,
because a busy machine makes the others slower. `bench/ratios.json` has what they were. The check fails when one is
worse by more than a third; a stop over HTTP, when it takes twice as long.

    python -m bench.ratios            print them, and fail when one is worse
    python -m bench.ratios --record   write them down, after a change that is meant
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path

from . import http_stop, provider_chunks, tool_turns
from ._server import running_server

KNOWN = Path(__file__).with_name("ratios.json")
WORSE = 4 / 3
HTTP_STOP, HTTP_STOP_WORSE, HTTP_STOPS = "a stop over HTTP", 2.0, 60
CHUNKS, CHUNK_ROUNDS = 5_000, 7
TURNS = {20: 9, 200: 3}


def measured() -> dict[str, float]:
    """The ratios on this machine, now."""
    with running_server() as server:
        bare, agent, _ = asyncio.run(provider_chunks.measure(server, CHUNKS, CHUNK_ROUNDS))
        ratios = {"a chunk": statistics.median(mine / floor for mine, floor in zip(agent, bare, strict=True))}
        for turns, rounds in TURNS.items():
            taken = asyncio.run(tool_turns.measure(server, turns, rounds))
            ratios[f"a tool turn, in a run of {turns}"] = tool_turns.ratio_to_lines(taken)
    times = asyncio.run(http_stop.run(HTTP_STOPS))
    ratios[HTTP_STOP] = _fastest_tenth(times["stop"]) / _fastest_tenth(times["bare"])
    return {name: round(ratio, 2) for name, ratio in ratios.items()}


def _fastest_tenth(times: list[float]) -> float:
    return statistics.quantiles(times, n=10)[0]


def worse_than(known: dict[str, float], now: dict[str, float]) -> list[str]:
    """What has become worse by more than it may."""
    return [
        name for name, ratio in now.items() if ratio > known[name] * (HTTP_STOP_WORSE if name == HTTP_STOP else WORSE)
    ]


def main(*, record: bool = False) -> int:
    """Print the ratios; returns 1 when one is worse, twice in a row."""
    now = measured()
    if record:
        KNOWN.write_text(json.dumps(now, indent=2) + "\n")
    known: dict[str, float] = json.loads(KNOWN.read_text())
    if worse_than(known, now):  # once more: one bad minute of the machine is no regression
        again = measured()
        now = {name: min(ratio, again[name]) for name, ratio in now.items()}
    worse = worse_than(known, now)
    for name, ratio in now.items():
        verdict = "WORSE" if name in worse else ""
        print(f"{name:28} {ratio:5.2f} of bare code; was {known[name]:.2f} {verdict}".rstrip())
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(record="--record" in sys.argv))
