"""Every point of asking, answering, steering, pausing and going on, from every source."""

from __future__ import annotations

import pytest

from quiesce.testing import ALL_SOURCES, stop_everywhere

from ..injection.sources import DIFFERENT_SOURCES, LINES_APART, SOME_POINTS
from .workloads import WORKLOADS

pytestmark = [
    pytest.mark.promise("P1", "P2"),
    pytest.mark.leaves("tasks"),  # tools that were abandoned; the injector looks for them itself, at every point
]


# These have some hundred points, most of them in the same wait for another run.
LONG = {
    "one_that_is_steered_from_elsewhere_is_stopped",
    "one_in_line_is_stopped",
    "one_whose_words_are_said_elsewhere_is_stopped",
    "one_that_is_stopped_from_elsewhere",
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point(name: str) -> None:
    """From the sources that take different ways into a run; from all of them, at all points, in `make proof`."""
    stride = 3 * SOME_POINTS if name in LONG else SOME_POINTS
    report = stop_everywhere(WORKLOADS[name], sources=DIFFERENT_SOURCES, stride=stride, name=name)
    print(report)
    assert report.runs > 10, "a workload that is hardly stopped proves nothing"


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point_from_every_source(name: str) -> None:
    report = stop_everywhere(WORKLOADS[name], sources=ALL_SOURCES, name=name)
    print(report)
    assert report.runs > 100, "a workload that is hardly stopped proves nothing"


@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_lines(name: str) -> None:
    """A stop between two lines of the core: a few here, more in `make proof`."""
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=997, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_any_two_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=LINES_APART, name=name))
