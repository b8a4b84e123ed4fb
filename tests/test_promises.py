"""Promises and tests belong together, in both directions; so do cases and tests."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.cases import CASES, LATER
from tests.collected_marks import WITHOUT_PROMISE, all_lines
from tests.promises import PLANNED, PROMISES

HERE = Path(__file__).parent
# A test that claims every promise does not help a search for the tests of one.
MOST = 2
# What is about the project itself; everywhere else, a test proves a promise or tries a feature.
HOUSE = (
    "tests/architecture/",
    "tests/bench/",
    "tests/docs/",
    "tests/package/",
    "tests/typing/",
    "tests/fleet/test_example_files.py",
    "tests/providers/test_sources.py",
    "tests/test_ci.py",
    "tests/test_mutation_tool.py",
    "tests/test_promises.py",
    "tests/tools/test_bench.py",
)
pytestmark = pytest.mark.house


class Collected:
    """Which tests name which promises and cases."""

    def __init__(self, lines: list[str]) -> None:
        self.without_promise: list[str] = []
        self.house: list[str] = []
        self.with_too_many: list[str] = []
        self.promises: dict[str, list[str]] = defaultdict(list)
        self.cases: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            test, promises, cases = line.split("\t")[1:]
            if promises == "house":
                self.house.append(test)
            for promise in set(promises.split()) - set(WITHOUT_PROMISE):
                self.promises[promise].append(test)
            for case in cases.split():
                self.cases[case].append(test)
            if not promises:
                self.without_promise.append(test)
            if len(promises.split()) > MOST:
                self.with_too_many.append(f"{test}: {promises}")


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> Collected:
    """All tests, the long ones too, as pytest itself collects them."""
    lines = all_lines(request.config)
    return Collected(lines if lines is not None else _collect())


def _collect() -> list[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "tests.collected_marks",
        str(HERE),
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=HERE.parent, env=_environment(), timeout=110
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("marks\t")]


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}


def test_every_test_names_a_promise_that_exists_or_says_that_it_proves_none(collected):
    assert collected.without_promise == []
    assert set(collected.promises) - set(PROMISES) == set()


def test_only_tests_of_the_project_itself_are_of_the_house(collected):
    assert [test for test in collected.house if not test.startswith(HOUSE)] == []
    assert [place for place in HOUSE if not any(test.startswith(place) for test in collected.house)] == []


def test_no_test_names_more_than_two_promises(collected):
    assert collected.with_too_many == []


def test_every_promise_has_a_test(collected):
    assert {promise for promise in PROMISES if not collected.promises[promise]} <= set(PLANNED)


def test_what_is_planned_is_not_there_yet(collected):
    assert set(PLANNED) <= set(PROMISES)
    done = {promise for promise in PLANNED if collected.promises[promise]}
    # Tests of a planned promise are welcome as they come; those of the core can never be on this list.
    assert done <= {"P9"}
    assert set(PLANNED) <= {"P9"}


def test_every_case_has_a_test_and_every_named_case_is_listed(collected):
    assert {case for case in CASES if not collected.cases[case]} == set()
    assert {case for case, tests in collected.cases.items() if tests} - set(CASES) == set()


def test_no_case_is_both_here_and_later():
    assert set(CASES) & set(LATER) == set()
    assert all(LATER.values())


def test_the_check_itself_notices():
    """A test without a promise, one that names a wrong one, and one that names too many, are seen."""
    seen = Collected(
        ["marks\ta\tP1 P77\tx#1", "marks\tb\t\t", "marks\tc\tP1 P2 P3\t", "marks\td\thouse\t", "marks\te\tfeature\t"]
    )
    assert seen.with_too_many == ["c: P1 P2 P3"]
    assert seen.without_promise == ["b"]
    assert seen.house == ["d"]
    assert set(seen.promises) - set(PROMISES) == {"P77"}
    assert seen.cases["x#1"] == ["a"]
