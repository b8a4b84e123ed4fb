"""A table of stops and violations for each workload: `python -m tests.injection.sweep --loop uvloop`.

The tests of this folder end at the first violation of a workload; a row goes on, and counts them all.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from typing import Any, Final

from quiesce.testing import ALL_SOURCES, StopViolation, trial
from quiesce.testing.injector import FAULTS, Injection
from quiesce.testing.stop_everywhere import _as_scenario, _Sweep
from quiesce.testing.trial import TrialResult

from .sources import READERS, read_by
from .test_faults import follow_up
from .workloads import WORKLOADS

SETS: Final[dict[str, Sequence[str]]] = {
    "stops": ALL_SOURCES,
    "faults": tuple(FAULTS),
    "lines": ("line", "ctrl_c"),
    "ctrl_c": ("ctrl_c",),
}
LOOPS: Final = ("asyncio", "uvloop", "eager")


def use_uvloop() -> None:
    """From here on, trials run on uvloop."""
    from .virtual_uvloop import VirtualUvloop

    replaced: Any = trial
    replaced.VirtualLoop = VirtualUvloop


class CountingSweep(_Sweep):
    """Goes on after a violation."""

    def __init__(self, name: str, *, eager: bool) -> None:
        scenario: Any = _as_scenario(WORKLOADS[name], "Go.")
        super().__init__(scenario, follow_up(name), 0, name, eager=eager)
        self.found: Final[list[str]] = []

    def _try(self, injection: Injection | None, kind: str) -> TrialResult:
        try:
            return super()._try(injection, kind)
        except StopViolation as violation:
            self.found.append(str(violation).rpartition("\n")[0])
            return TrialResult(0, [], [], stopped=injection is not None)


def row(name: str, options: argparse.Namespace) -> CountingSweep:
    """All stops of one workload."""
    with read_by(options.reader):
        sweep = CountingSweep(name, eager=options.loop == "eager")
        for source in SETS[options.chosen]:
            sweep.stop_from(source, options.stride, distinct=options.distinct)
    points = ", ".join(f"{count} {kind}s" for kind, count in sweep.report.points.items())
    print(f"| {name} | {points} | {sweep.report.runs} | {len(sweep.found)} |", flush=True)
    return sweep


def main() -> None:
    """Print the table, and the violations below it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help="the event loop, or eager tasks on asyncio's")
    parser.add_argument("--set", choices=SETS, default="stops", dest="chosen", help="which sources of stops")
    parser.add_argument("--reader", choices=READERS, default="run", help="the task that reads the model")
    parser.add_argument("--stride", type=int, default=1, help="every n-th point only")
    parser.add_argument("--distinct", action="store_true", help="each line of source the first and the last time only")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help="all of them if none is named")
    options = parser.parse_args()
    if options.loop == "uvloop":
        use_uvloop()
    how = f"{options.loop}, {options.chosen}, read by the {options.reader}, every {options.stride}. point"
    print(f"Python {platform.python_version()}, {how}")
    print("| workload | points | stops | violations |\n|---|---|---|---|")
    began = time.monotonic()
    rows = [row(name, options) for name in options.names or WORKLOADS]
    found = [violation for each in rows for violation in each.found]
    stops = sum(each.report.runs for each in rows)
    print(f"{stops} stops, {len(found)} violations, {time.monotonic() - began:.0f} s", *found, sep="\n\n")


if __name__ == "__main__":
    main()
