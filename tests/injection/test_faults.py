"""Other faults than a stop, and faults together with a stop: a few points here, all of them in `make proof`."""

from __future__ import annotations

import sys

import pytest

from quiesce.testing import ALL_SOURCES, stop_everywhere

from .sources import LINES_APART
from .workloads import WORKLOADS

pytestmark = pytest.mark.promise("P1", "P7")

RESETS = ("stop_and_reset", "stop_then_reset", "reset_then_stop")
SECOND_FAULTS = ("stop_and_store_failure", "store_failure_then_stop", "stop_and_tool_error", "late_timers_then_stop")
# Its gate is opened by a timer of the loop that was closed.
HANGS_WITHOUT_ITS_LOOP = ("sync_tool_that_hangs",)
SMALL = ("text", "one_tool", "stream", "session_with_tools")
eager = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")


def follow_up(name: str) -> str | None:
    return None if name in HANGS_WITHOUT_ITS_LOOP else "And then?"


@pytest.mark.parametrize("name", SMALL)
def test_a_loop_that_closes_at_any_point(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["close"], stride=3, name=name, follow_up=follow_up(name)))


@pytest.mark.parametrize("name", SMALL)
def test_a_stop_together_with_a_connection_that_breaks(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=RESETS, stride=5, name=name))


@pytest.mark.parametrize("name", ["one_tool", "session_with_tools"])
def test_a_stop_together_with_another_fault(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=SECOND_FAULTS, stride=11, name=name))


@pytest.mark.parametrize("name", ["text", "one_tool", "stream", "session_with_tools"])
def test_ctrl_c_between_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["ctrl_c"], stride=997, name=name))


@eager
@pytest.mark.parametrize("name", SMALL)
def test_a_stop_where_tasks_begin_at_once(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["loop", "task", "twice"], stride=3, name=name, eager=True))


# --- All of them ------------------------------------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_in_a_loop_that_closes(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["close"], name=name, follow_up=follow_up(name)))


# A Ctrl-C between a coroutine and its task: Python warns that the coroutine was never awaited, which is so.
never_awaited = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.proof
@never_awaited
@pytest.mark.parametrize("name", WORKLOADS)
def test_ctrl_c_at_every_line_of_source(name: str) -> None:
    """The first and the last time that a line is executed."""
    print(stop_everywhere(WORKLOADS[name], sources=["ctrl_c"], distinct=True, stride=LINES_APART, name=name))


@pytest.mark.proof
@never_awaited
@pytest.mark.parametrize("name", ["text", "one_tool", "stream"])
def test_ctrl_c_between_any_two_lines(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["ctrl_c"], stride=LINES_APART, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_with_a_connection_that_breaks(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=RESETS, name=name))


@pytest.mark.proof
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_with_another_fault(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=SECOND_FAULTS, name=name))


@pytest.mark.proof
@eager
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_where_tasks_begin_at_once(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=ALL_SOURCES, name=name, eager=True))
