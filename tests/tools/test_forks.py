"""What a killable tool forks: its children end by TERM at once, and it still hears of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import oddities
import pytest
from tool_runs import agent_with, call, killable, results, run_async, stop_when, stray_processes

from quiesce.messages import Outcome
from quiesce.models.scripted import Call

pytestmark = [
    pytest.mark.promise("P4", "P5"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
]


def test_no_way_of_forking_leaves_the_child_a_handler_for_term() -> None:
    """A handler in Python only notes the signal: a child that is about to wait in C then waits for ever."""

    async def main() -> None:
        assert (await call(killable(oddities.term_in_forks))).text == "none; itself: True"

    run_async(main())


def test_a_child_that_is_told_to_end_in_the_moment_of_its_fork_ends() -> None:
    async def main() -> None:
        assert (await call(killable(oddities.end_children_at_once), {"count": 200})).text == "all"

    run_async(main())


def test_pools_of_processes_come_to_their_end() -> None:
    async def main() -> None:
        assert (await call(killable(oddities.pools), {"count": 10})).text == "5"
        assert stray_processes() == []

    run_async(main())


@pytest.mark.proof
def test_a_thousand_pools_of_processes_come_to_their_end() -> None:
    """Of 260, 10 hung when a forked child kept the worker's handler."""

    async def main() -> None:
        for _ in range(40):
            assert (await call(killable(oddities.pools), {"count": 25})).text == "12"
        assert stray_processes() == []

    run_async(main())


def test_term_in_a_fork_is_raised_in_the_tool(tmp_path: Path) -> None:
    """The hooks of a fork swallow what is raised in them: the tool hears of it when the fork is over."""

    async def main() -> None:
        book = tmp_path / "book"
        result = await call(killable(oddities.told_in_a_fork), {"book": str(book)})
        assert book.read_text() == "cleaned up"
        assert "TERM" in result.text

    run_async(main())


@pytest.mark.parametrize("attempt", range(10))
def test_a_tool_that_forks_all_the_time_can_clean_up(attempt: int, tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(oddities.fork_until_terminated, grace=30)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel())
        assert book.read_text() == "cleaned up"
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert stray_processes() == []

    run_async(main())
