"""The sync API: with and without a running loop, nested, and Ctrl-C."""

import contextvars
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from quiesce import Agent, Mode, tool
from quiesce._threads.background_loop import close_portals, portal
from quiesce.errors import ModelProtocolError
from quiesce.events import RunEnded
from quiesce.models.scripted import Call, Raw, Say, ScriptedModel, Stall
from tests.core.kit import outcomes, scripted

pytestmark = pytest.mark.promise("P1", "P7")


@pytest.mark.feature
def test_a_call_without_a_loop():
    agent = Agent(scripted("Hello."))
    assert str(agent("go")) == "Hello."
    assert agent("more").text == "Fine."


@pytest.mark.feature
async def test_a_call_inside_a_running_loop():
    assert Agent(scripted("Hello."))("go").text == "Hello."


@pytest.mark.feature
def test_a_sync_call_inside_a_sync_tool_of_a_sync_call():
    inner = Agent(scripted("inner"))

    @tool
    def ask() -> str:
        return inner("go").text

    result = Agent(scripted([Call("ask")]), tools=[ask])("go")
    assert outcomes(result) == {"ask": "completed"}
    assert result.messages[2].results[0].text == "inner"


@pytest.mark.feature
def test_a_sync_call_inside_an_async_tool_of_a_sync_call():
    inner = Agent(scripted("inner"))

    @tool
    async def ask() -> str:
        return inner("go").text

    result = Agent(scripted([Call("ask")]), tools=[ask])("go")
    assert result.messages[2].results[0].text == "inner"


@pytest.mark.parametrize("is_async", [True, False])
def test_sync_calls_inside_each_other_use_no_loop_that_waits_for_them(is_async):
    def below(inner):
        async def ask() -> str:
            return inner("go").text

        def ask_in_a_thread() -> str:
            return inner("go").text

        asking = tool(ask if is_async else ask_in_a_thread, name="ask")
        return Agent(ScriptedModel([Call("ask")], "Done."), tools=[asking])

    agent, answers = below(below(below(Agent(scripted("inner"))))), []
    thread = threading.Thread(target=lambda: answers.append(agent("go").text), daemon=True)
    thread.start()
    thread.join(60)
    assert answers == ["Done."]


@pytest.mark.feature
def test_the_callers_context_reaches_tools():
    name = contextvars.ContextVar("name")
    name.set("Ada")

    @tool
    def who() -> str:
        return name.get()

    assert Agent(scripted([Call("who")]), tools=[who])("go").messages[2].results[0].text == "Ada"


def test_a_failure_is_raised_in_the_callers_thread():
    with pytest.raises(ModelProtocolError):
        Agent(scripted([Raw("garbage")]))("go")


def test_start_without_a_loop_and_waiting():
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    run = agent.start("go")
    with pytest.raises(TimeoutError):
        run.wait(0.01)
    assert not run.done
    run.cancel(mode=Mode.KILL)
    assert run.wait().stop_reason == "cancelled"
    assert run.wait(0).receipt.mode == "kill"


@pytest.mark.feature
def test_options_reach_a_run_in_the_background():
    from quiesce import Conversation, Limits

    agent = Agent(scripted([Say("word " * 100)]))
    branch = Conversation()
    result = agent("go", limits=Limits(output_tokens=5), conversation=branch, timeout=1000)
    assert result.stop_reason == "limit"
    assert agent.messages == ()
    assert branch.messages == result.messages


@pytest.mark.leaves("tasks")
def test_closing_the_background_settles_what_runs():
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    run = agent.start("go")
    close_portals()
    result = run.wait(20)
    assert (result.stop_reason, result.receipt.cause.source) == ("cancelled", "caller")
    assert portal().usable


@pytest.mark.feature
def test_a_portal_is_used_again_and_calls_raise_what_was_raised():
    first = portal()
    assert portal() is first
    assert not first.is_current
    assert first.call(lambda: threading.current_thread().name).startswith("quiesce-sync-")
    with pytest.raises(ZeroDivisionError):
        first.call(lambda: 1 / 0)


# --- Many threads ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(110)
def test_fifty_threads_cancel_a_run_at_once_a_thousand_times():
    """No exception, one cause, one terminal event."""
    threads, rounds = 50, 1000
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    ready, done = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
    current: list = []
    errors: list[BaseException] = []

    def cancel(number: int) -> None:
        for _ in range(rounds):
            ready.wait()
            try:
                current[-1].cancel(f"thread {number}")
            except BaseException as error:
                errors.append(error)
            done.wait()

    workers = [threading.Thread(target=cancel, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    ends = 0
    for _ in range(rounds):
        seen: list = []
        run = portal().call(lambda seen=seen: _start_and_tap(agent, seen))
        current.append(run)
        ready.wait()
        result = run.wait(30)
        done.wait()
        assert result.stop_reason == "cancelled"
        assert result.receipt.cause.reason.startswith("thread ")
        ends += sum(isinstance(event, RunEnded) for event in seen)
        agent.clear()
    for worker in workers:
        worker.join()
    assert errors == []
    assert ends == rounds
    assert agent.active_runs == ()


def _start_and_tap(agent: Agent, seen: list):
    run = agent.start("go")
    run.tap(seen.append)
    return run


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------

INTERRUPTED = textwrap.dedent(
    """
    import sys, threading, os, signal
    from quiesce import Agent, tool
    from quiesce.events import ToolStarted
    from quiesce.models.scripted import Call, Say, ScriptedModel
    from quiesce._threads.background_loop import portal
    from quiesce.conversation.validity import faults

    interrupts = int(sys.argv[1])

    def interrupt():
        # Only once the main thread is blocked, waiting for the run: that is what is tested.
        def waiting():
            frame, names = sys._current_frames()[threading.main_thread().ident], []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            return names[0] == "wait" and "wait_in_thread" in names

        def work():
            import time
            while not waiting():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=work).start()

    @tool(on_stop="finish", grace=60)
    async def work() -> str:
        import asyncio
        interrupt()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            print("tool cancelled", flush=True)
            raise

    @tool(grace=60)
    async def stops() -> str:
        import asyncio
        interrupt()
        await asyncio.get_running_loop().create_future()

    name = "work" if interrupts == 2 else "stops"
    agent = Agent(ScriptedModel([Say("Well. "), Call(name)], then="Fine."), tools=[work, stops])
    from quiesce.hooks import OnStop

    @agent.hook(OnStop)
    def again(event):
        print("stop seen:", event.cause, flush=True)
        if interrupts == 2:
            interrupt()

    try:
        agent("go")
    except KeyboardInterrupt:
        print("interrupted;", len(agent.active_runs), "runs;", faults(agent.messages), flush=True)
        print(agent.messages[2].results[0].outcome, flush=True)
        print(agent("again").text, flush=True)
    """
)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("interrupts", [1, 2])
def test_ctrl_c_stops_the_run_and_is_raised_when_it_is_at_rest(interrupts, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, str(script), str(interrupts)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "stop seen: signal: Ctrl-C"
    assert "interrupted; 0 runs; ()" in lines
    assert lines[-2:] == ["cancelled", "Fine."]


@pytest.mark.feature
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gets_a_background_of_its_own():
    code = textwrap.dedent(
        """
        import os, sys
        from quiesce import Agent
        from quiesce.models.scripted import ScriptedModel
        agent = Agent(ScriptedModel(then="Fine."))
        assert agent("go").text == "Fine."
        child = os.fork()
        if child == 0:
            os._exit(0 if agent("in the child").text == "Fine." else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
