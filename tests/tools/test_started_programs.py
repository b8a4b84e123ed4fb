"""Programs that a tool starts by itself: they end with a call that is stopped, or the receipt names them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quiesce import Agent, Receipt, Tool, ToolContext
from quiesce.messages import Outcome
from quiesce.processes.started import StartedProgram
from quiesce.testing import Call, ScriptedModel

pytestmark = [
    pytest.mark.promise("P4", "P5"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes"),
]
SLEEP = ("sleep", "600")
NEVER_ENDS = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


class Started:
    """What the tools below have started."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.in_loop: list[asyncio.subprocess.Process] = []
        self.ready = asyncio.Event()

    def note(self, *pids: int) -> None:
        self.pids += pids
        self.ready.set()

    async def waited_for(self) -> None:
        """The loop has heard of the ends of its processes, and how they ended: nothing else has reaped them."""
        for each in self.in_loop:
            assert await each.wait() in (-signal.SIGTERM, -signal.SIGKILL)


async def in_asyncio(started: Started) -> str:
    process = await asyncio.create_subprocess_exec(*SLEEP)
    started.in_loop.append(process)
    started.note(process.pid)
    return str(await process.wait())


async def with_a_child_of_its_own(started: Started) -> str:
    process = await asyncio.create_subprocess_shell("sleep 600 & echo $!; wait", stdout=subprocess.PIPE)
    assert process.stdout is not None
    started.in_loop.append(process)
    started.note(process.pid, int(await process.stdout.readline()))
    return str(await process.wait())


async def that_ignores_term(started: Started) -> str:
    process = await asyncio.create_subprocess_exec(*NEVER_ENDS, stdout=subprocess.PIPE)
    assert process.stdout is not None
    started.in_loop.append(process)
    await process.stdout.readline()
    started.note(process.pid)
    return str(await process.wait())


async def in_the_loop(started: Started) -> str:
    started.note(subprocess.Popen(SLEEP).pid)
    await asyncio.Event().wait()
    return "never"


async def in_a_thread(started: Started) -> str:
    def work() -> int:
        with subprocess.Popen(SLEEP) as process:
            loop.call_soon_threadsafe(started.note, process.pid)
            return process.wait()

    loop = asyncio.get_running_loop()
    return str(await asyncio.to_thread(work))


def make_tool(work: Callable[[Started], Coroutine[Any, Any, str]], started: Started, **options: Any) -> Tool:
    async def work_tool() -> str:
        return await work(started)

    return Tool(work_tool, name="work", **options)


async def stopped_while(work: Callable[[Started], Coroutine[Any, Any, str]], **options: Any) -> tuple[Receipt, Started]:
    started = Started()
    agent = Agent(ScriptedModel([Call("work", id="c1")], then="Yes."), tools=[make_tool(work, started, **options)])
    run = agent.start("Go")
    await started.ready.wait()
    run.cancel("enough")
    receipt = await run.stopped()
    if receipt.calls[0].outcome is not Outcome.ABANDONED:
        await started.waited_for()
    return receipt, started


@pytest.mark.parametrize("work", [in_asyncio, with_a_child_of_its_own, in_the_loop, in_a_thread])
async def test_a_stop_ends_what_a_tool_started(work):
    receipt, started = await stopped_while(work)
    assert receipt.still_running == ()
    assert receipt.calls[0].outcome is Outcome.CANCELLED
    assert not any(map(is_alive, started.pids))


async def test_what_ignores_term_is_killed_after_the_grace():
    receipt, started = await stopped_while(that_ignores_term, grace=0.05)
    assert receipt.still_running == ()
    assert not any(map(is_alive, started.pids))


async def test_the_policy_abandon_leaves_it_and_names_it():
    receipt, started = await stopped_while(in_asyncio, on_stop="abandon", grace=0)
    (pid,) = started.pids
    assert receipt.still_running == (f"tool work (c1) process {pid} (sleep)",)
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


async def test_what_a_call_left_on_purpose_is_named():
    left: list[subprocess.Popen[bytes]] = []

    async def serve() -> str:
        left.append(subprocess.Popen(SLEEP))
        return "It runs."

    agent = Agent(ScriptedModel([Call("serve", id="c1")], then="Yes."), tools=[Tool(serve)])
    result = await agent.invoke_async("Go")
    assert result.receipt.still_running == (f"process {left[0].pid} (sleep) of tool serve (c1)",)
    assert left[0].poll() is None
    left[0].kill()
    left[0].wait()
    assert (await agent.invoke_async("Go on")).receipt.still_running == ()


async def test_a_program_that_ended_or_never_began_is_not_named():
    async def quick() -> str:
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(("there is no such program",))
        return subprocess.run(("echo", "done"), capture_output=True, check=True, text=True).stdout

    result = await Agent(ScriptedModel([Call("quick")], then="Yes."), tools=[Tool(quick)]).invoke_async("Go")
    assert result.receipt.still_running == ()


async def test_programs_of_others_are_left_alone():
    """The host starts one while a tool runs, and a killable tool brings the fork server."""
    begun = asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    run = Agent(ScriptedModel([Call("work")], then="Yes."), tools=[Tool(work)]).start("Go")
    await begun.wait()
    with subprocess.Popen(SLEEP) as other:
        run.cancel("enough")
        assert (await run.stopped()).still_running == ()
        assert other.poll() is None
        other.kill()


def test_a_loop_that_is_closed_ends_them_too():
    started: list[Started] = []

    async def main() -> None:
        started.append(Started())
        agent = Agent(ScriptedModel([Call("work")], then="Yes."), tools=[make_tool(in_the_loop, started[0])])
        runs.append(agent.start("Go"))
        await started[0].ready.wait()

    runs: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert runs[0].done
    assert not any(map(is_alive, started[0].pids))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="descriptors of processes")
def test_a_program_is_ended_where_many_files_are_open() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    process = subprocess.Popen(SLEEP)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        StartedProgram("sleep", process, in_loop=False).kill_and_wait(60)
        assert process.returncode == -signal.SIGKILL
    finally:
        for handle in opened:
            os.close(handle)
        process.kill()
        process.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
