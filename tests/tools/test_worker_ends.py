"""Workers, supervisors and hosts that end when nobody asked them to: each is told of as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hazards
import oddities
import pytest
from hazards import survivors
from tool_runs import agent_with, call, killable, results, run_async, stop_when, stray_processes

from quiesce import Agent
from quiesce.events import StopRequested, ToolEnded, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.processes import supervised
from quiesce.processes.kill_tree import children
from quiesce.processes.supervised import fork_server
from quiesce.tools.builtin import make_shell
from quiesce.tools.tool import Tool
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P4", "P5")


# --- Odd ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "outcome", "words"),
    [
        (oddities.exit_at_once, Outcome.COMPLETED, "ended with code 3 before the tool returned.\nBefore that it had"),
        (oddities.raise_keyboard_interrupt, Outcome.COMPLETED, "KeyboardInterrupt: from a tool"),
        (oddities.raise_system_exit, Outcome.COMPLETED, "SystemExit: 4"),
        (oddities.kill_itself, Outcome.KILLED, "killed (SIGKILL) by something else"),
        (oddities.crash, Outcome.KILLED, "ended by SIGSEGV"),
        (oddities.terminate_itself, Outcome.KILLED, "ended by SIGTERM"),
        (oddities.raise_unspeakable, Outcome.COMPLETED, "Unspeakable"),
        (oddities.take_the_next_of_nothing, Outcome.COMPLETED, "StopIteration"),
        (oddities.print_and_exit, Outcome.COMPLETED, "had printed:\nhalf a line, a number: 7"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_tool_that_ends_its_process_is_told_of(function, outcome, words) -> None:
    async def main() -> None:
        each = killable(function)
        agent = Agent(
            ScriptedModel([Call(each.name)], [Call("speak", {"words": "fine"})], then="done"),
            tools=[each, killable(oddities.speak)],
        )
        found = results(await agent.invoke_async("go"))
        assert found[each.name].outcome is outcome
        assert words in found[each.name].text
        assert "RuntimeError" not in found[each.name].text
        assert found[each.name].is_error
        assert found["speak"].text == "fine"

    run_async(main())


def test_a_worker_that_is_killed_from_outside_is_told_of(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(hazards.sleep)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda _: os.kill(int(book.read_text().split()[0]), signal.SIGKILL))
        result = results(outcome)[each.name]
        assert result.outcome is Outcome.KILLED
        assert "lack of memory" in result.text
        assert outcome.stop_reason == "end_turn"

    run_async(main())


def test_a_worker_whose_supervisor_is_killed_is_told_of(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(hazards.sleep)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])

        def kill_supervisor(_: object) -> None:
            worker = int(book.read_text().split()[0])
            supervisor = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(supervisor, signal.SIGKILL)

        outcome, _ = await stop_when(agent, kill_supervisor)
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        for _ in range(200):  # the kernel ends the worker; nothing tells when
            if not survivors(str(book)):
                break
            await asyncio.sleep(0.01)
        assert survivors(str(book)) == []

    run_async(main())


def test_an_idle_worker_that_was_killed_is_replaced() -> None:
    async def main() -> None:
        each = killable(oddities.process_id)
        pid = int((await call(each)).text)
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.001)
        result = await call(each)
        if result.outcome is Outcome.KILLED:  # the pool had not heard of it yet, and says so; the next one works
            result = await call(each)
        assert result.outcome is Outcome.COMPLETED
        assert int(result.text) != pid

    run_async(main())


def test_a_fork_server_that_was_killed_is_replaced() -> None:
    async def main() -> None:
        each = killable(oddities.process_id)
        await call(each)
        assert fork_server.pid is not None
        os.kill(fork_server.pid, signal.SIGKILL)
        for _ in range(6):
            assert (await call(killable(oddities.leave_a_thread))).text == "left"

    run_async(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_what_a_whole_service_is_sent_ends_neither_fork_server_nor_supervisors(number: int, tmp_path: Path) -> None:
    """A service manager that stops a service tells each of its processes. How a call ends is for the host to say."""

    async def main() -> None:
        each = killable(oddities.clean_up, grace=10)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(tmp_path / "book")})])

        def tell_all_but_the_worker(run) -> None:
            assert fork_server.pid is not None
            for pid in (fork_server.pid, *children(fork_server.pid)):
                os.kill(pid, number)
            run.cancel()

        outcome, _ = await stop_when(agent, tell_all_but_the_worker)
        assert (tmp_path / "book").read_text() == "cleaned up"
        assert results(outcome)[each.name].outcome is Outcome.KILLED

    run_async(main())


# --- Processes that cannot be started ------------------------------------------------------------------------------


@pytest.fixture
def fork_server_that(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Have the fork server run some code first."""
    start = supervised._START

    def begin_with(code: str) -> None:
        pool.shut_down()
        monkeypatch.setattr(supervised, "_START", start.replace("main({})", f"{code}\nmain({{}})"))

    yield begin_with
    pool.shut_down()


RUN_TRUE = make_shell(name="run_true", grace=0.05), {"command": "true"}
NOTHING = killable(oddities.process_id), {}


@pytest.mark.parametrize(("each", "arguments"), [NOTHING, RUN_TRUE], ids=["worker", "program"])
def test_a_process_that_cannot_be_forked_is_told_of(
    fork_server_that, each: Tool, arguments: dict, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.touch()
    fork_server_that(
        "import os; real = os.fork\n"
        "def fork():\n"
        f" if os.path.exists({str(full)!r}): raise BlockingIOError(11, 'too many processes')\n"
        " return real()\n"
        "os.fork = fork\n"
    )

    async def main() -> None:
        refused = await call(each, arguments)
        assert "could not be started (BlockingIOError: [Errno 11] too many processes)" in refused.text
        pid = fork_server.pid
        full.unlink()
        assert not (await call(each, arguments)).is_error
        assert fork_server.pid == pid

    run_async(main())


@pytest.mark.parametrize(
    ("each", "arguments", "outcome"),
    [(*NOTHING, Outcome.UNKNOWN), (*RUN_TRUE, Outcome.COMPLETED)],
    ids=["worker", "program"],
)
def test_a_supervisor_that_ends_without_a_word_is_told_of(
    fork_server_that, each: Tool, arguments: dict, outcome
) -> None:
    fork_server_that(
        "import os; from quiesce.processes import supervisor; supervisor._Supervisor.run = lambda _: os._exit(1)"
    )
    result = run_async(call(each, arguments))
    assert (result.outcome, result.is_error) == (outcome, True)
    assert "whether it ran is not known" in result.text


@pytest.mark.parametrize("kind", ["worker", "program"])
def test_too_many_open_files_are_told_of_and_none_stays_open(kind: str) -> None:
    """In a process of its own, in which nothing else opens or closes a file: the numbers are exact."""
    script = Path(__file__).with_name("scarce_files.py")
    done = subprocess.run([sys.executable, str(script), kind], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    results = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(results) == 14
    assert sum("could not be started ([Errno 24] Too many open files" in text for text, _ in results) > 5
    assert {left for _, left in results} == {"[]"}


# --- Idle workers, and calls that were not begun -------------------------------------------------------------------


async def _idle_worker() -> tuple[int, int]:
    """The process ids of a worker that waits for its next call, and of its supervisor."""
    worker = int((await call(killable(oddities.process_id))).text)
    return worker, int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_idle_worker_that_is_killed_from_outside_costs_no_call() -> None:
    async def main() -> None:
        worker, supervisor = await _idle_worker()
        os.kill(supervisor, signal.SIGSTOP)  # so that nobody hears of it before the call is sent
        os.kill(worker, signal.SIGKILL)
        run = agent_with(killable(oddities.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                os.kill(supervisor, signal.SIGCONT)
        result = results(await run)["process_id"]
        assert (result.outcome, result.is_error) == (Outcome.COMPLETED, False), result.text
        assert int(result.text) != worker
        assert stray_processes() == []

    run_async(main())


def test_a_stop_ends_a_call_that_was_sent_to_a_dead_worker() -> None:
    async def main() -> None:
        worker, supervisor = await _idle_worker()
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        run = agent_with(killable(oddities.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                run.cancel()
            if isinstance(event, StopRequested):
                os.kill(supervisor, signal.SIGCONT)
        assert [call.outcome for call in (await run.stopped()).calls] == [Outcome.NEVER_STARTED]
        assert stray_processes() == []

    run_async(main())


@pytest.mark.case("cursor-forum#162261")
@pytest.mark.parametrize("mode", ["now", "kill"])
def test_a_stop_before_the_function_has_begun_says_so(mode: str) -> None:
    async def main() -> None:
        worker, _ = await _idle_worker()
        os.kill(worker, signal.SIGSTOP)  # it has other things to do
        agent = agent_with(killable(oddities.process_id))
        outcome, events = await stop_when(
            agent, lambda run: run.cancel(mode=mode), ready=lambda event: isinstance(event, ToolStarted)
        )
        result = results(outcome)["process_id"]
        assert (result.outcome, outcome.receipt.calls[0].outcome) == (Outcome.NEVER_STARTED, Outcome.NEVER_STARTED)
        assert [event.result.outcome for event in events if isinstance(event, ToolEnded)] == [Outcome.NEVER_STARTED]
        assert stray_processes() == []

    run_async(main())


def test_a_stop_does_not_wait_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has begun, so there is nothing to give a grace to."""
    begun = tmp_path / "begun"
    code = f"""
import os, time
def build() -> str: return "built"
if os.getpid() != {os.getpid()}:
    open({str(begun)!r}, "w").close()
    time.sleep(10_000)
"""
    (tmp_path / "takes_its_time.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> None:
        import takes_its_time  # pyright: ignore[reportMissingImports]

        run = agent_with(killable(takes_its_time.build, grace=1000)).start("go")
        while not begun.exists():
            await asyncio.sleep(0.01)
        run.cancel()
        assert [call.outcome for call in (await run.stopped()).calls] == [Outcome.NEVER_STARTED]
        assert stray_processes() == []

    run_async(main())
    del sys.modules["takes_its_time"]


def test_a_call_is_not_made_again_when_nobody_can_say_that_it_has_not_begun() -> None:
    async def main() -> None:
        worker, supervisor = await _idle_worker()
        os.kill(worker, signal.SIGSTOP)  # it will not come to the call
        run = agent_with(killable(oddities.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                os.kill(supervisor, signal.SIGKILL)  # and who could say so is gone
        assert [call.outcome for call in (await run).receipt.calls] == [Outcome.KILLED]

    run_async(main())


@pytest.mark.promise("P9")
def test_a_call_that_has_begun_is_not_made_again(tmp_path: Path) -> None:
    book = tmp_path / "book"
    result = run_async(call(killable(oddities.sign_and_die), {"book": str(book)}))
    assert result.outcome is Outcome.KILLED
    assert len(book.read_text().splitlines()) == 1


# --- The host -------------------------------------------------------------------------------------------------------


def test_the_tree_ends_with_a_host_that_is_killed(tmp_path: Path) -> None:
    import subprocess

    book = str(tmp_path / "book")
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
import asyncio, hazards
from tool_runs import agent_with
from quiesce.models.scripted import Call
from quiesce.tools.tool import Tool
each = Tool(hazards.double_fork, on_stop="kill")
async def main():
    run = agent_with(each, calls=[Call(each.name, {{"book": {book!r}}})]).start("go")
    async for event in run:
        if type(event).__name__ == "ToolProgress": print("ready", flush=True)
asyncio.run(main())
"""
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"
    assert len(survivors(book)) == 2
    host.kill()
    host.wait()
    host.stdout.close()
    for _ in range(500):
        if not survivors(book):
            break
        threading.Event().wait(0.01)
    assert survivors(book) == []
