"""A table of stops and violations for each workload: `python -m tests.injection.sweep --loop uvloop`.

The tests of this folder stop at the first violation of a workload, and so does a row; the table goes on with the next.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from typing import Any, Final

from quiesce.testing import ALL_SOURCES, StopViolation, stop_everywhere, trial
from quiesce.testing.injector import FAULTS

from .test_faults import follow_up
from .workloads import WORKLOADS

SETS: Final[dict[str, Sequence[str]]] = {"stops": ALL_SOURCES, "faults": tuple(FAULTS), "lines": ("line", "ctrl_c")}
LOOPS: Final = ("asyncio", "uvloop", "eager")


def use_uvloop() -> None:
    """From here on, trials run on uvloop."""
    from .virtual_uvloop import VirtualUvloop

    replaced: Any = trial
    replaced.VirtualLoop = VirtualUvloop


def row(name: str, sources: Sequence[str], stride: int, *, eager: bool) -> tuple[int, str]:
    """The number of stops of one workload, and its violation, if any."""
    try:
        report = stop_everywhere(
            WORKLOADS[name], sources=sources, stride=stride, name=name, eager=eager, follow_up=follow_up(name)
        )
    except StopViolation as violation:
        return 0, str(violation)
    points = ", ".join(f"{count} {kind}s" for kind, count in report.points.items())
    print(f"| {name} | {points} | {report.runs} | 0 |", flush=True)
    return report.runs, ""


def main() -> None:
    """Print the table, and the violations below it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help="the event loop, or eager tasks on asyncio's")
    parser.add_argument("--set", choices=SETS, default="stops", dest="chosen", help="which sources of stops")
    parser.add_argument("--stride", type=int, default=1, help="every n-th point only")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help="all of them if none is named")
    options = parser.parse_args()
    if options.loop == "uvloop":
        use_uvloop()
    print(f"Python {platform.python_version()}, {options.loop}, {options.chosen}, every {options.stride}. point")
    print("| workload | points | stops | violations |\n|---|---|---|---|")
    began, stops, found = time.monotonic(), 0, list[str]()
    for name in options.names or WORKLOADS:
        made, violation = row(name, SETS[options.chosen], options.stride, eager=options.loop == "eager")
        stops += made
        if violation:
            print(f"| {name} | | | 1 |", flush=True)
            found.append(violation)
    print(f"{stops} stops, {len(found)} violations, {time.monotonic() - began:.0f} s", *found, sep="\n\n")


if __name__ == "__main__":
    main()
