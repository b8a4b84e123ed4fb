"""Every point of every workload, from every source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.errors import ConfigurationError
from quiesce.testing import ALL_SOURCES, Harness, stop_everywhere
from quiesce.testing.injector import POINTS, Injection
from quiesce.testing.trial import Trial

from .sources import DIFFERENT_SOURCES, LINES_APART, READERS, SOME_POINTS, read_by
from .workloads import WORKLOADS

RECORDED = Path(__file__).parent / "points.json"
pytestmark = pytest.mark.promise("P1", "P2")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point(name: str, reader: str) -> None:
    """At every point from one source, at some from those that take other ways into a run; the whole in `make proof`."""
    first, *others = DIFFERENT_SOURCES
    with read_by(reader):
        print(stop_everywhere(WORKLOADS[name], sources=[first], name=name))
        report = stop_everywhere(WORKLOADS[name], sources=others, stride=SOME_POINTS, name=name)
    print(report)
    recorded = json.loads(RECORDED.read_text())[reader][name]
    for kind, points in recorded.items():
        if kind in report.points:
            assert report.points[kind] >= points, f"{name} had {points} {kind}s; a drop must be recorded on purpose"


@pytest.mark.proof
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_at_every_point_from_every_source(name: str, reader: str) -> None:
    with read_by(reader):
        print(stop_everywhere(WORKLOADS[name], sources=ALL_SOURCES, name=name))


@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_lines(name: str) -> None:
    """A stop as a signal handler makes it, between two lines of the core: some of them here, more in `make proof`."""
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=499, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_stop_between_any_two_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["line"], stride=LINES_APART, name=name))


def test_there_are_enough_workloads() -> None:
    recorded = json.loads(RECORDED.read_text())
    assert all(recorded[reader].keys() == WORKLOADS.keys() for reader in READERS)
    assert len(WORKLOADS) >= 20


@pytest.mark.feature
def test_a_source_that_does_not_exist_is_refused() -> None:
    """It ended after 40 s with "Event loop stopped", because the error was raised inside a callback of the loop."""
    with pytest.raises(ConfigurationError, match=r"no source of stops called 'now'.*loop, thread, task"):
        stop_everywhere(next(iter(WORKLOADS.values())), sources=["now"])


@pytest.mark.parametrize("source", ALL_SOURCES)
def test_each_source_stops_the_run(source: str) -> None:
    """A source that finds nothing to stop breaks no promise either."""
    result = Trial(Injection(source, 5), POINTS.get(source, "step")).run(WORKLOADS["one_tool"], None, None)
    assert (result.faults, result.stopped) == ([], True)
    assert [reason for reason, _ in result.ends] == ["cancelled"]


async def starts_no_run(_: Harness) -> None: ...


@pytest.mark.parametrize("sources", [ALL_SOURCES, ["hook"], ["line"], []])
def test_a_scenario_that_is_never_stopped_is_an_error(sources: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIESCE_REPLAY", raising=False)
    with pytest.raises(ConfigurationError, match=r"starts_no_run was never stopped .* No promise was checked"):
        stop_everywhere(starts_no_run, sources=sources)


def test_a_replay_of_the_stop_of_another_test_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_REPLAY", "loop:9999")
    assert stop_everywhere(WORKLOADS["text"], sources=["loop"]).runs == 0
    monkeypatch.setenv("QUIESCE_REPLAY", "loop:2")
    assert stop_everywhere(WORKLOADS["text"], sources=["loop"]).runs == 1
