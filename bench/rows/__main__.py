"""Measure every row, print the tables, and write them into docs/performance.md.

    python -m bench.rows                     all of it; six to eight minutes on a quiet machine with two cores
    python -m bench.rows --quick             the same with tiny numbers, only printed
    python -m bench.rows --before REVISION   also an earlier version of Quiesce, from the repository
    python -m bench.rows --install           only make the environments, under .venv-field; needs the package index

Each client is a process of its own, in its own environment, and all talk to the same server on this machine. The
rounds of a row alternate between the clients, so that a noisy machine disturbs all alike. A turn or a chunk is one of
a run whose events are read as they come, by all alike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import page, plan, profiles
from .environments import PACKAGES, environment, export
from .process import Subject
from .wires import running_ways


@contextlib.contextmanager
def subjects(before: str | None) -> Iterator[list[Subject]]:
    """The columns of the table, while the sources of the earlier version are there."""
    found = [Subject(plan.LINES, "lines", "bare"), Subject(plan.FLOOR, "floor", "bare")]
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        if before:
            found.append(Subject(plan.BEFORE, "quiesce", "before", str(export(before, Path(folder)))))
        yield [
            *found,
            Subject(plan.NOW, "quiesce", "quiesce"),
            *(Subject(name, module, module) for name, module in plan.OTHERS.items()),
        ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rows", description="Every row of docs/performance.md.")
    parser.add_argument("--quick", action="store_true", help="tiny numbers, only printed")
    parser.add_argument("--before", metavar="REVISION", help="also measure this earlier version of Quiesce")
    parser.add_argument("--install", action="store_true", help="only make the environments")
    return parser.parse_args()


def main() -> int:
    """The whole program. Returns 1 when a client could not be measured in a row."""
    options, progress, load = _options(), plan.Progress(), os.getloadavg()[0]
    for name in PACKAGES:
        if name != "before" or options.before or options.install:
            environment(name)
    if options.install:
        return 0
    scale = plan.QUICK if options.quick else plan.FULL
    with subjects(options.before) as clients, running_ways() as ways:
        measured = plan.measure(scale, clients, ways, progress)
        found = profiles.profiles(clients, ways, 5 if options.quick else 100, progress)
        assert ways.relayed.value  # nobody went past the proxy
    progress("done")
    text = page.report(measured, [each.name for each in clients if each.name not in plan.OTHERS], found, load)
    print(text)
    if not options.quick:
        page.write(text)
    return int(bool(page.failures(measured)))


if __name__ == "__main__":
    sys.exit(main())
