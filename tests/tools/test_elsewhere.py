"""What is done where the kernel is not Linux's.

The part that runs on macOS needs nothing of macOS: it is what is left when the kernel adopts no orphans and lists no
children. So it is run here, in processes that are told that they are not on Linux, without what only Linux has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hazards
import oddities
import pytest
from hazards import survivors
from tool_runs import agent_with, call, killable, results, run_async, stop_when

from quiesce import ToolContext
from quiesce.errors import ConfigurationError, ToolError
from quiesce.mcp import MCPServer
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.processes import kill_tree, supervised
from quiesce.tools.program import Program
from quiesce.tools.tool import Tool
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P1", "P5")

ELSEWHERE = """
import os, select, sys
sys.path[:] = sys.argv[2:]
for name in ("waitid", "pidfd_open"):
    delattr(os, name)
del select.epoll
from quiesce.processes import kill_tree, supervisor
supervisor.LINUX = kill_tree.LINUX = False
from quiesce.processes.fork_server import main
main({})
"""


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers and supervisors as they are on a system without subreapers and without /proc."""
    pool.shut_down()
    monkeypatch.setattr(supervised, "_START", ELSEWHERE)
    monkeypatch.setattr(supervised, "LINUX", False)
    # Each look at the process table is a program here, on a machine that is busy.
    for where in ("call_stop", "worker.call", "program"):
        monkeypatch.setattr(f"quiesce.tools.{where}.EXIT_GRACE", 30.0)
    yield
    pool.shut_down()


def test_a_worker_is_used_again(elsewhere: None) -> None:
    async def main() -> None:
        first, second = [(await call(killable(oddities.process_id))).text for _ in range(2)]
        assert first == second

    run_async(main())


@pytest.mark.parametrize("mode", ["now", "kill"])
@pytest.mark.parametrize(
    "hazard",
    [hazards.sleep, hazards.hold_interpreter, hazards.ignore_term, hazards.child_ignores_term, hazards.full_pipe,
     hazards.hundred_children],
    ids=lambda hazard: hazard.__name__,
)  # fmt: skip
def test_a_stop_leaves_nothing(elsewhere: None, hazard, mode: str, tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazard)
        agent = agent_with(each, calls=[Call(each.name, {"book": book})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel(mode=mode))
        assert survivors(book) == []
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert outcome.receipt.still_running == ()
        assert (await call(killable(oddities.speak), {"words": "next"})).text == "next"

    run_async(main())


@pytest.mark.parametrize(
    ("script", "left"), [("echo one", 0), ("sleep 1000 & echo one", 1), ("sleep 1000 & sleep 1000 & echo one", 2)]
)
def test_what_a_program_leaves_running_is_counted_and_ended(elsewhere: None, script: str, left: int) -> None:
    async def main() -> None:
        ended = await Program(["sh", "-c", script], grace=lambda: 0.05).run()
        assert (ended.stdout, ended.code, ended.left_running) == ("one\n", 0, left)

    run_async(main())


def test_a_child_that_left_the_group_is_found_below_its_parent(elsewhere: None, tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazards.child_in_a_session_of_its_own)
        agent = agent_with(each, calls=[Call(each.name, {"book": book})])
        await stop_when(agent, lambda run: run.cancel(mode="kill"))
        while survivors(book):  # nobody tells when it is gone: it is another's orphan by then
            await asyncio.sleep(0.01)

    run_async(main())


def test_the_process_table_tells_who_belongs_to_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_tree, "LINUX", False)
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert kill_tree.children(os.getpid()).count(child.pid) == 1
            (grandchild,) = kill_tree.children(child.pid)
            assert {child.pid, grandchild} <= set(kill_tree.descendants(os.getpid()))
            assert set(kill_tree.members(child.pid, child.pid)) == {child.pid, grandchild}
            assert kill_tree.alive_below(child.pid, child.pid) == 2
        finally:
            os.killpg(child.pid, signal.SIGKILL)


# --- Windows ----------------------------------------------------------------------------------------------------------


def test_programs_are_refused_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def run(ctx: ToolContext) -> str:
            return (await ctx.run_process(["echo", "hi"])).stdout

        monkeypatch.setattr(sys, "platform", "win32")
        result = await call(Tool(run))
        assert result.is_error
        assert "cannot be run as a tool on Windows" in result.text

    asyncio.run(main())


def test_mcp_servers_are_not_started_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        import mcp  # noqa: F401  (what it imports looks at the platform too)

        monkeypatch.setattr(sys, "platform", "win32")
        with pytest.raises(ConfigurationError, match="on Windows"):
            await MCPServer.stdio("uvx", "mcp-server-git").connect()

    asyncio.run(main())


def test_killable_tools_are_refused_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match="does not work on Windows"):
        killable(hazards.sleep)
    with pytest.raises(ToolError, match="on Windows"):
        asyncio.run(_start_a_program())


async def _start_a_program() -> None:
    await Program(["echo"], grace=lambda: 0.0).run()
