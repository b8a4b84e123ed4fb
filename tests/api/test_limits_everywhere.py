"""Limits and timeouts, stopped at every point, from every source."""

from __future__ import annotations

import pytest

from quiesce.testing import ALL_SOURCES, stop_everywhere

from ..injection.sources import DIFFERENT_SOURCES, LINES_APART, SOME_POINTS
from .limit_workloads import WORKLOADS

pytestmark = pytest.mark.promise("P1", "P2")


@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point(name: str) -> None:
    """Some points, from the sources that take different ways into a run; all of both in `make proof`."""
    print(stop_everywhere(WORKLOADS[name], sources=DIFFERENT_SOURCES, stride=SOME_POINTS, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point_from_every_source(name: str) -> None:
    report = stop_everywhere(WORKLOADS[name], sources=ALL_SOURCES, name=name)
    print(report)
    least = 15 if name == "refused" else 50  # a run whose limit a person does not raise ends in one step
    assert report.runs > least, "a workload that is hardly stopped proves nothing"


@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=997, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_any_two_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=LINES_APART, name=name))
