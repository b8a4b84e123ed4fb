"""`on_stop="kill"`: whatever a tool does, a stop ends it, with everything that it started."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from pathlib import Path

import hazards
import pytest
from hazards import HAZARDS, survivors
from tool_runs import agent_with, call, results, run_async, stop_when, stray_processes

from quiesce import Agent, tool
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.events import StopRequested, ToolEnded, ToolProgress, ToolStarted
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.processes.containment import nursery
from quiesce.tools.processes.workers import pool
from quiesce.tools.tool import Tool
from quiesce.transcript import check

pytestmark = pytest.mark.promise("P1", "P4", "P5")


def killable(function, **options) -> Tool:
    return Tool(function, on_stop="kill", **{"grace": 0.05, **options})


# --- Stopping ------------------------------------------------------------------------------------------------------


@pytest.mark.case("odysseus#2338")
@pytest.mark.case("GenericAgent#797")
@pytest.mark.parametrize("mode", ["now", "kill"])
@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.__name__)
def test_a_stop_leaves_nothing(hazard, mode, tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazard)
        agent = Agent(
            ScriptedModel([Call(each.name, {"book": book})], [Call("again")], then="done"),
            tools=[each, killable(hazards.process_id, name="again")],
        )
        outcome, events = await stop_when(agent, lambda run: run.cancel("test", mode=mode))
        assert survivors(book) == []
        assert stray_processes() == []
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert outcome.stop_reason == "cancelled"
        assert outcome.receipt.still_running == ()
        assert [call.outcome for call in outcome.receipt.calls] == [Outcome.KILLED]
        assert len([event for event in events if isinstance(event, ToolEnded)]) == 1
        following = await agent.invoke_async("go on")
        assert results(following)["again"].outcome is Outcome.COMPLETED

    run_async(main())


def test_many_at_once_are_stopped_together(tmp_path: Path) -> None:
    async def main() -> None:
        tools = [killable(hazard) for hazard in HAZARDS]
        book = str(tmp_path / "book")
        calls = [Call(each.name, {"book": f"{book}-{each.name}"}) for each in tools]
        ready: set[str] = set()

        def all_ready(event: object) -> bool:
            if isinstance(event, ToolProgress) and event.progress == "ready":
                ready.add(event.name)
            return len(ready) == len(tools)

        outcome, _ = await stop_when(agent_with(*tools, calls=calls), lambda run: run.cancel(), ready=all_ready)
        assert [survivors(f"{book}-{each.name}") for each in tools] == [[]] * len(tools)
        assert stray_processes() == []
        assert {result.outcome for result in results(outcome).values()} == {Outcome.KILLED}

    run_async(main())


def test_a_stop_lets_a_tool_clean_up(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(hazards.clean_up, grace=10)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel())
        assert book.read_text() == "cleaned up"
        assert results(outcome)[each.name].outcome is Outcome.KILLED

    run_async(main())


def test_the_next_worker_is_started_when_the_run_is_at_rest(tmp_path: Path) -> None:
    async def main() -> None:
        pool.shut_down()
        each = killable(hazards.sleep)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(tmp_path / "book")})])
        await stop_when(agent, lambda run: run.cancel(mode="kill"))
        assert pool.kept() == nursery.handles
        while pool.kept() == nursery.handles:
            await asyncio.sleep(0.01)
        ready = pool.kept()
        assert (await call(killable(hazards.speak), {"words": "next"})).text == "next"
        assert pool.kept() == ready

    run_async(main())


@pytest.mark.promise("P3")
def test_a_result_that_came_in_the_grace_is_kept() -> None:
    async def main() -> None:
        each = killable(hazards.finish_when_asked, grace=10)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel())
        result = results(outcome)[each.name]
        assert (result.outcome, result.text) == (Outcome.COMPLETED, "stopped by parent")
        assert stray_processes() == []

    run_async(main())


def test_a_patient_stop_is_seen_and_waited_for() -> None:
    async def main() -> None:
        each = killable(hazards.finish_when_asked)
        outcome, _ = await stop_when(agent_with(each), lambda run: run.cancel(mode="after_tools"))
        assert results(outcome)[each.name].text == "stopped by parent"
        assert await call(killable(hazards.speak), {"words": "next"})

    run_async(main())


def test_a_shield_in_a_process_holds_the_stop_back(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(hazards.protected, grace=10)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])
        outcome, _ = await stop_when(agent, lambda run: run.cancel())
        assert book.read_text() == "whole"
        assert results(outcome)[each.name].outcome is Outcome.KILLED

    run_async(main())


def test_kill_takes_the_grace_away(tmp_path: Path) -> None:
    async def main() -> None:
        each = killable(hazards.ignore_term, grace=1000)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(tmp_path / "book")})])

        def stop_twice(run) -> None:
            run.cancel()
            asyncio.get_running_loop().call_later(0.05, lambda: run.cancel(mode="kill"))

        outcome, _ = await stop_when(agent, stop_twice)
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert survivors(str(tmp_path / "book")) == []

    run_async(main())


def test_a_tool_can_stop_its_own_run() -> None:
    async def main() -> None:
        outcome = await agent_with(killable(hazards.stop_the_run)).invoke_async("go")
        assert outcome.receipt.cause is not None
        assert (outcome.receipt.cause.source, outcome.receipt.cause.reason) == ("tool", "enough")

    run_async(main())


@pytest.mark.promise("P7")
def test_an_outside_cancellation_kills_too(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = killable(hazards.hundred_children)
        agent = agent_with(each, calls=[Call(each.name, {"book": book})])
        ready = asyncio.Event()
        run = agent.start("go")
        run.tap(lambda event: ready.set() if isinstance(event, ToolProgress) else None)
        waiting = asyncio.create_task(_wait_within(run))
        await ready.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert survivors(book) == []

    async def _wait_within(run) -> None:
        async with run:
            await run.result()

    run_async(main())


@pytest.mark.leaves("tasks")
def test_a_loop_that_shuts_down_kills_too(tmp_path: Path) -> None:
    book = str(tmp_path / "book")
    each = killable(hazards.hundred_children)

    async def main() -> None:
        ready = asyncio.Event()
        run = agent_with(each, calls=[Call(each.name, {"book": book})]).start("go")
        run.tap(lambda event: ready.set() if isinstance(event, ToolProgress) else None)
        await ready.wait()  # and leave: asyncio.run cancels every task

    asyncio.run(main())
    assert survivors(book) == []


# --- Asking a person -----------------------------------------------------------------------------------------------


@pytest.mark.promise("P2", "P3")
def test_a_person_can_be_asked_from_a_process() -> None:
    async def main() -> None:
        agent = agent_with(killable(hazards.ask_first))
        asked = await agent.invoke_async("go")
        assert asked.stop_reason == "interrupt"
        (colour,) = asked.interrupts
        assert (colour.name, colour.kind, colour.tool_name) == ("colour", "question", "ask_first")
        assert colour.reason == {"choices": ["red", "blue"]}
        again = await agent.resume_async({colour.id: "blue"})
        (size,) = again.interrupts
        assert (size.name, size.expires_at is not None) == ("size", True)
        done = await agent.resume_async({size.id: 7})
        result = results(done)["ask_first"]
        assert result.outcome is Outcome.COMPLETED
        assert result.text.startswith("7 blue ")
        assert int(result.text.split()[2]) != os.getpid()
        assert stray_processes() == []

    run_async(main())


@pytest.mark.promise("P2", "P4")
def test_a_question_from_a_process_can_be_dropped() -> None:
    async def main() -> None:
        agent = agent_with(killable(hazards.ask_first))
        assert (await agent.invoke_async("go")).stop_reason == "interrupt"
        outcome = await agent.invoke_async("never mind")
        assert outcome.stop_reason == "end_turn"
        check(agent.messages)

    run_async(main())


# --- Workers that end by themselves -------------------------------------------------------------------------------


async def _idle_worker() -> tuple[int, int]:
    """The process ids of a worker that waits for its next call, and of its keeper."""
    worker = int((await call(killable(hazards.process_id))).text)
    return worker, int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_idle_worker_that_is_killed_from_outside_costs_no_call() -> None:
    async def main() -> None:
        worker, keeper = await _idle_worker()
        os.kill(keeper, signal.SIGSTOP)  # so that nobody hears of it before the call is sent
        os.kill(worker, signal.SIGKILL)
        run = agent_with(killable(hazards.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                os.kill(keeper, signal.SIGCONT)
        result = results(await run.result())["process_id"]
        assert (result.outcome, result.is_error) == (Outcome.COMPLETED, False), result.text
        assert int(result.text) != worker
        assert stray_processes() == []

    run_async(main())


def test_a_stop_ends_a_call_that_was_sent_to_a_dead_worker() -> None:
    async def main() -> None:
        worker, keeper = await _idle_worker()
        os.kill(keeper, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        run = agent_with(killable(hazards.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                run.cancel()
            if isinstance(event, StopRequested):
                os.kill(keeper, signal.SIGCONT)
        assert [call.outcome for call in (await run.stopped()).calls] == [Outcome.NEVER_STARTED]
        assert stray_processes() == []

    run_async(main())


@pytest.mark.case("cursor-forum#162261")
@pytest.mark.parametrize("mode", ["now", "kill"])
def test_a_stop_before_the_function_has_begun_says_so(mode: str) -> None:
    async def main() -> None:
        worker, _ = await _idle_worker()
        os.kill(worker, signal.SIGSTOP)  # it has other things to do
        agent = agent_with(killable(hazards.process_id))
        outcome, events = await stop_when(
            agent, lambda run: run.cancel(mode=mode), ready=lambda event: isinstance(event, ToolStarted)
        )
        result = results(outcome)["process_id"]
        assert (result.outcome, outcome.receipt.calls[0].outcome) == (Outcome.NEVER_STARTED, Outcome.NEVER_STARTED)
        assert [event.result.outcome for event in events if isinstance(event, ToolEnded)] == [Outcome.NEVER_STARTED]
        assert stray_processes() == []

    run_async(main())


def test_a_call_is_not_made_again_when_nobody_can_say_that_it_has_not_begun() -> None:
    async def main() -> None:
        worker, keeper = await _idle_worker()
        os.kill(worker, signal.SIGSTOP)  # it will not come to the call
        run = agent_with(killable(hazards.process_id)).start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                os.kill(keeper, signal.SIGKILL)  # and who could say so is gone
        assert [call.outcome for call in (await run.result()).receipt.calls] == [Outcome.KILLED]

    run_async(main())


@pytest.mark.promise("P9")
def test_a_call_that_has_begun_is_not_made_again(tmp_path: Path) -> None:
    book = tmp_path / "book"
    result = run_async(call(killable(hazards.sign_and_die), {"book": str(book)}))
    assert result.outcome is Outcome.KILLED
    assert len(book.read_text().splitlines()) == 1


# --- What comes back -----------------------------------------------------------------------------------------------


def test_output_logging_progress_and_context_come_back(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        each = killable(hazards.log_and_report)
        state = {"given": "state", "lock": threading.Lock()}
        agent = agent_with(each, state=state)
        run = agent.start("go")
        events = [event async for event in run]
        progress = [event.progress for event in events if isinstance(event, ToolProgress)]
        assert {"step": 1} in progress
        assert "".join(part.get("stdout", "") for part in progress) == "on stdout\n"
        assert "".join(part.get("stderr", "") for part in progress) == "on stderr\n"
        assert results(await run.result())[each.name].text == "state False log_and_report True call_1"
        assert "changed" not in state

    run_async(main())
    assert ("hazards.log", logging.WARNING, "careful with this") in caplog.record_tuples


def test_exceptions_come_back_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        result = await call(killable(hazards.raise_deep))
        assert (result.text, result.is_error, result.outcome) == ("ValueError: deep down", True, Outcome.COMPLETED)

    with caplog.at_level(logging.DEBUG, logger="quiesce"):
        run_async(main())
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert "in deeper" in str(record.exc_info[1].__cause__)


def test_an_exception_that_cannot_be_sent_is_told() -> None:
    result = run_async(call(killable(hazards.raise_unpicklable)))
    assert result.text == "Unpicklable: this and that"
    assert result.is_error


def test_a_result_that_cannot_be_sent_is_told() -> None:
    result = run_async(call(killable(hazards.return_unpicklable)))
    assert "finished, but what it returned cannot be sent from its process" in result.text
    assert result.outcome is Outcome.COMPLETED


def test_arguments_that_cannot_be_sent_are_told() -> None:
    class Local:
        pass

    def wants(value: int) -> str:
        return str(value)

    each = killable(wants)
    each.validate = lambda arguments: {"value": Local()}  # a validator may make anything of what the model wrote
    result = run_async(call(each, {"value": 1}))
    assert "cannot be sent to its process" in result.text
    assert result.is_error


def test_async_functions_and_generators_run_in_a_process_too() -> None:
    async def main() -> None:
        assert (await call(killable(hazards.asynchronous))).text == "async"
        agent = agent_with(killable(hazards.steps))
        run = agent.start("go")
        progress = [event.progress async for event in run if isinstance(event, ToolProgress)]
        assert progress == [1, 2]
        assert results(await run.result())["steps"].text == "2"

    run_async(main())


# --- Where the function comes from ---------------------------------------------------------------------------------


def test_a_function_inside_another_goes_by_value() -> None:
    offset = 10

    def twice(number: int) -> int:
        return 2 * number

    def compute(number: int, *, extra: int = 1) -> int:
        def inner() -> int:
            return twice(number) + offset + extra + int(os.getpid() == parent)

        return inner()

    parent = os.getpid()
    assert run_async(call(killable(compute), {"number": 4})).text == "19"


def test_a_local_function_sees_what_its_closure_holds_now() -> None:
    async def main() -> None:
        assert (await call(each)).text == "1"
        counter["value"] = 2
        assert (await call(each)).text == "2"

    counter = {"value": 1}

    def read() -> int:
        return counter["value"]

    each = killable(read)
    run_async(main())


def test_a_function_that_calls_itself_goes_by_value() -> None:
    def factorial(number: int) -> int:
        return 1 if number < 2 else number * factorial(number - 1)

    assert run_async(call(killable(factorial), {"number": 5})).text == "120"


def test_what_cannot_travel_is_refused_at_once() -> None:
    lock = threading.Lock()

    @tool(on_stop="kill")
    def guarded() -> str:
        with lock:
            return "x"

    with pytest.raises(InvalidTool, match=r"'lock', which .*guarded uses, cannot be sent"):
        Agent(ScriptedModel("x"), tools=[guarded])


def test_methods_travel_with_their_object() -> None:
    assert run_async(call(killable(Greeter("hi").greet))).text == "hi"


class Greeter:
    def __init__(self, word: str) -> None:
        self.word = word

    def greet(self) -> str:
        return self.word


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_memory": 1}, "need a process"),
        ({"max_cpu": 1.0}, "need a process"),
        ({"on_stop": "kill", "max_memory": 0}, "max_memory=0"),
        ({"on_stop": "kill", "timeout": -1}, "timeout=-1"),
    ],
)
def test_policies_that_cannot_work_are_refused(options, words) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Tool(hazards.speak, **options)


def test_windows_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ConfigurationError, match="does not work on Windows"):
        Tool(hazards.speak, on_stop="kill")


# --- Odd ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "outcome", "words"),
    [
        (hazards.exit_at_once, Outcome.COMPLETED, "ended with code 3 before the tool returned.\nBefore that it had"),
        (hazards.raise_keyboard_interrupt, Outcome.COMPLETED, "KeyboardInterrupt: from a tool"),
        (hazards.raise_system_exit, Outcome.COMPLETED, "SystemExit: 4"),
        (hazards.kill_itself, Outcome.KILLED, "killed (SIGKILL) by something else"),
        (hazards.crash, Outcome.KILLED, "ended by SIGSEGV"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_tool_that_ends_its_process_is_told_of(function, outcome, words) -> None:
    async def main() -> None:
        each = killable(function)
        agent = Agent(
            ScriptedModel([Call(each.name)], [Call("speak", {"words": "fine"})], then="done"),
            tools=[each, killable(hazards.speak)],
        )
        found = results(await agent.invoke_async("go"))
        assert found[each.name].outcome is outcome
        assert words in found[each.name].text
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


def test_a_worker_whose_keeper_is_killed_is_told_of(tmp_path: Path) -> None:
    async def main() -> None:
        book = tmp_path / "book"
        each = killable(hazards.sleep)
        agent = agent_with(each, calls=[Call(each.name, {"book": str(book)})])

        def kill_keeper(_: object) -> None:
            worker = int(book.read_text().split()[0])
            keeper = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(keeper, signal.SIGKILL)

        outcome, _ = await stop_when(agent, kill_keeper)
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        for _ in range(200):  # the kernel ends the worker; nothing tells when
            if not survivors(str(book)):
                break
            await asyncio.sleep(0.01)
        assert survivors(str(book)) == []

    run_async(main())


def test_an_idle_worker_that_was_killed_is_replaced() -> None:
    async def main() -> None:
        each = killable(hazards.process_id)
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


def test_a_nursery_that_was_killed_is_replaced() -> None:
    async def main() -> None:
        each = killable(hazards.process_id)
        await call(each)
        assert nursery.pid is not None
        os.kill(nursery.pid, signal.SIGKILL)
        for _ in range(6):
            assert (await call(killable(hazards.leave_a_thread))).text == "left"

    run_async(main())


def test_limits_on_memory_and_processor_time() -> None:
    async def main() -> None:
        greedy = killable(hazards.take_memory, max_memory=50_000_000)
        assert (await call(greedy, {"size": 1000})).text == "1000"
        refused = await call(greedy, {"size": 500_000_000})
        assert refused.text == "It needed more memory than its max_memory of 50,000,000 bytes."
        assert (await call(greedy, {"size": 1000})).text == "1000"
        unlimited = await call(killable(hazards.take_memory), {"size": 200_000_000})
        assert unlimited.text == "200000000"
        burnt = await call(killable(hazards.burn, max_cpu=0.1))
        assert burnt.outcome is Outcome.KILLED
        assert "more processor time than its max_cpu of 0.1 s" in burnt.text

    run_async(main())


def test_a_call_leaves_its_worker_clean(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        assert (await call(killable(hazards.leave_a_child), {"book": book})).text == "left"
        assert survivors(book) == []
        assert (await call(killable(hazards.leave_a_thread))).text == "left"
        assert (await call(killable(hazards.close_stdout))).text == "closed"
        assert (await call(killable(hazards.return_in_the_child_too))).text == "parent"
        agent = agent_with(killable(hazards.speak), calls=[Call("speak", {"words": "heard"})])
        run = agent.start("go")
        progress = [event.progress async for event in run if isinstance(event, ToolProgress)]
        assert progress == [{"stdout": "heard\n"}]
        assert stray_processes() == []

    run_async(main())


def test_workers_are_used_again_and_follow_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def surroundings() -> list[str]:
        return [os.getcwd(), os.environ.get("QUIESCE_TEST", "none")]

    async def main() -> None:
        each = killable(hazards.process_id)
        assert (await call(each)).text == (await call(each)).text
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("QUIESCE_TEST", "set")
        assert (await call(killable(surroundings))).text == f'["{tmp_path}","set"]'

    run_async(main())


def test_big_arguments_and_results_pass() -> None:
    def double(text: str) -> str:
        return text * 2

    result = run_async(call(killable(double), {"text": "ab" * 1_000_000}))
    assert result.text == "ab" * 2_000_000


def test_workers_serve_several_loops_and_threads_at_once() -> None:
    found: list[str] = []

    def use() -> None:
        for _ in range(5):
            found.append(asyncio.run(call(killable(hazards.speak), {"words": "x"})).text)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["x"] * 20


def test_nothing_is_left_after_shut_down() -> None:
    from quiesce.tools.processes.reaper import descendants

    run_async(call(killable(hazards.speak), {"words": "x"}))
    pid = nursery.pid
    assert pid is not None
    below = descendants(pid)
    assert below
    pool.shut_down()
    for _ in range(500):
        if not any(Path(f"/proc/{each}").exists() for each in (pid, *below)):
            break
        threading.Event().wait(0.01)
    assert not [each for each in (pid, *below) if Path(f"/proc/{each}").exists()]
    assert run_async(call(killable(hazards.speak), {"words": "again"})).text == "again"


def test_the_tree_ends_with_a_host_that_is_killed(tmp_path: Path) -> None:
    import subprocess
    import sys

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
