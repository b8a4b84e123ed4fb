"""Branch coverage of the core by its own tests. Fails when a file that matters most is below the mark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parent.parent
MARK: Final = 97.0
# The mark holds for the first group as a whole; the second is shown beside it.
CORE: Final = (
    "cancellation/",
    "conversation/sealing.py",
    "conversation/validity.py",
    "run/handle.py",
    "run/loop.py",
    "run/settle.py",
)
# Steering, undo, children and sessions run through the core too, and have tests of their own. The programmes that stop
# at every point are left out: they take long under coverage.
TESTS: Final = (
    "tests/core",
    "tests/interrupts/test_asking.py",
    "tests/interrupts/test_questions.py",
    "tests/interrupts/test_unanswered.py",
    "tests/interrupts/test_steering.py",
    "tests/interrupts/test_busy.py",
    "tests/delegation",
    "tests/sessions/test_sessions.py",
    "tests/sessions/test_failing_store.py",
    "tests/sessions/test_going_on.py",
    "tests/sessions/test_failures.py",
    "tests/tools/test_one_call.py",
    "tests/undo",
    "tests/test_context.py",
    "-k",
    "not every_point and not at_every and not interleav",
)
CLOSE_BY: Final = (
    "conversation/answer.py",
    "run/events/fanout.py",
    "run/handoff.py",
    "run/start.py",
    "run/state.py",
    "run/turn.py",
)


def main() -> int:
    """Run the tests of the core under coverage, print a table, return 1 when something is below the mark."""
    with tempfile.TemporaryDirectory() as scratch:
        data, report = Path(scratch, "coverage"), Path(scratch, "report.json")
        coverage = [sys.executable, "-m", "coverage"]
        # In one process: the explorer of interleavings sets trace functions of its own, in threads of its own, which
        # does not disturb the tracer of the others.
        tests = ["-m", "pytest", "-q", "-m", "not proof", *TESTS]
        done = subprocess.run([*coverage, "run", f"--data-file={data}", *tests], cwd=ROOT, check=False)  # noqa: S603
        if done.returncode:
            return done.returncode
        quiet = ["json", "-q", f"--data-file={data}", "-o", str(report)]
        subprocess.run([*coverage, *quiet], cwd=ROOT, check=True)  # noqa: S603
        files = msgspec.json.decode(report.read_bytes())["files"]
    return 0 if _show(files) else 1


def _show(files: dict[str, dict[str, dict[str, int]]]) -> bool:
    covered = possible = 0
    for name, found in sorted(files.items()):
        part = name.partition("src/quiesce/")[2]
        if not part.startswith((*CORE, *CLOSE_BY)):
            continue
        figures = found["summary"]
        hit = figures["covered_lines"] + figures["covered_branches"]
        all_ = figures["num_statements"] + figures["num_branches"]
        percent = 100.0 if not all_ else 100 * hit / all_
        missing = f"lines {found['missing_lines']} branches {found['missing_branches']}" if hit < all_ else ""
        print(f"{percent:6.1f} %  {part:<28} {missing}")
        if part.startswith(CORE):
            covered, possible = covered + hit, possible + all_
    total = 100 * covered / possible if possible else 0.0
    print(f"{total:6.1f} %  the core: {', '.join(CORE)} (at least {MARK:g} %)")
    return total >= MARK


if __name__ == "__main__":
    sys.exit(main())
