"""Ctrl-C and SIGTERM as stops: real signals, sent to real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from quiesce import CancellationToken, stop_on_signals
from quiesce.errors import ConfigurationError, UnknownMode

INT, TERM = signal.SIGINT, signal.SIGTERM

HEADER = '''
import asyncio, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent process ignores
from quiesce import Agent, CancellationToken, ToolContext, stop_on_signals, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall, TornCall

def say(*words):
    print(*words, flush=True)

def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

before = handlers()
reader, writer = os.pipe()

def stay_in_c(word):
    """Say this and wait for a byte, all in one C function: the main thread runs no handler of SIGTERM meanwhile."""
    os.set_inheritable(reader, True)
    os.system(f"echo {word}; head -c 1 <&{reader} > {os.devnull}")
'''


def converse(program: str, *signals_per_line: signal.Signals) -> tuple[list[str], int]:
    """Run a program; send it the n-th signal when it prints its n-th line. Its lines and its exit code."""
    source = HEADER + textwrap.dedent(program)
    child = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    to_send = list(signals_per_line)
    assert child.stdout is not None
    with child, child.stdout:
        for line in child.stdout:
            lines.append(line.rstrip())
            if to_send:
                child.send_signal(to_send.pop(0))
    return lines, child.returncode


LADDER = """
    token = CancellationToken()
    steps = threading.Semaphore(0)
    with stop_on_signals(token) as stop:
        token.watch(lambda mode: steps.release())
        say("ready")
        for _ in range(3):
            steps.acquire()
            say(token.mode.value, token.cause)
    say([each.name for each in stop.received], handlers() == before)
"""


@pytest.mark.promise("P1", "P7")
@pytest.mark.parametrize("sent", [(INT, INT, INT), (TERM, TERM, TERM), (INT, TERM, INT)])
def test_each_signal_is_more_urgent_and_the_handlers_come_back(sent: tuple[signal.Signals, ...]) -> None:
    lines, code = converse(LADDER, *sent)
    first = f"signal: {sent[0].name}"
    assert lines == [
        "ready",
        f"after_tools {first}",
        f"now {first}",
        f"kill {first}",
        f"{[each.name for each in sent]} True",
    ]
    assert code == 0


@pytest.mark.promise("P7")
def test_a_signal_after_the_last_goes_to_the_handler_that_was_there_before() -> None:
    program = """
        token = CancellationToken()
        try:
            with stop_on_signals(token, modes=["now"]):
                say("ready")
                token.wait_sync()
                say("stopped, and hanging")
                while True:
                    pass
        except KeyboardInterrupt:
            say("KeyboardInterrupt", handlers() == before)
    """
    lines, code = converse(program, INT, INT)
    assert lines == ["ready", "stopped, and hanging", "KeyboardInterrupt True"]
    assert code == 0


@pytest.mark.promise("P7")
def test_a_terminate_after_the_last_ends_the_process() -> None:
    program = """
        token = CancellationToken()
        with stop_on_signals(token, modes=["now"]):
            say("ready")
            token.wait_sync()
            say("stopped, and hanging")
            while True:
                pass
    """
    lines, code = converse(program, TERM, TERM)
    assert lines == ["ready", "stopped, and hanging"]
    assert code == -TERM


IN_A_LOOP = """
    async def main():
        agent = Agent(ScriptedModel([Say("half a sentence", chunk=99), Stall()]))
        run = agent.start("hello")
        with stop_on_signals({target}):
            async for event in run:
                if type(event).__name__ == "TextDelta":
                    say("streaming")
        result = await run
        say(result.stop_reason, result.receipt.cause, result.receipt.mode.value, result.text)
        say(handlers() == inside)
    async def outer():
        global inside
        inside = handlers()
        await main()
    {runner}(outer())
    say(handlers() == before)
"""
EXPECTED_IN_A_LOOP = ["streaming", "cancelled signal: SIGTERM after_tools half a sentence", "True", "True"]


@pytest.mark.promise("P1", "P7")
@pytest.mark.parametrize("target", ["run", "agent"])
@pytest.mark.parametrize("runner", ["asyncio.run", "__import__('uvloop').run"])
def test_a_signal_wakes_a_stalled_stream(target: str, runner: str) -> None:
    if "uvloop" in runner:
        pytest.importorskip("uvloop")
    lines, code = converse(IN_A_LOOP.format(target=target, runner=runner), TERM)
    assert lines == EXPECTED_IN_A_LOOP
    assert code == 0


@pytest.mark.promise("P1", "P7")
def test_without_a_loop_in_the_main_thread_a_blocked_wait_returns_the_result() -> None:
    program = """
        agent = Agent(ScriptedModel([Say("half", chunk=99), Stall()]))
        run = agent.start("hello")
        with stop_on_signals(run):
            say("started")
            result = run.wait()
        say(result.stop_reason, result.receipt.cause, handlers() == before)
    """
    lines, code = converse(program, INT)
    assert lines == ["started", "cancelled signal: SIGINT True"]
    assert code == 0


@pytest.mark.promise("P1", "P7")
def test_a_signal_stops_the_run_while_the_main_thread_runs_no_handler() -> None:
    """The same happens, rarely, to a signal that comes just before the main thread waits for a lock."""
    program = """
        agent = Agent(ScriptedModel([Say("half", chunk=99), Stall()]))
        run = agent.start("hello")
        threading.Thread(target=lambda: (run.wait(), os.write(writer, b"."))).start()
        with stop_on_signals(run) as stop:
            stay_in_c("reading")
        result = run.wait()
        say(result.stop_reason, result.receipt.cause, result.receipt.mode.value, [each.name for each in stop.received])
        say(handlers() == before, signal.set_wakeup_fd(-1))
    """
    lines, code = converse(program, TERM)
    assert lines == ["reading", "cancelled signal: SIGTERM after_tools ['SIGTERM']", "True -1"]
    assert code == 0


@pytest.mark.promise("P7")
def test_a_signal_that_the_main_thread_has_handled_is_not_handled_again() -> None:
    program = """
        token = CancellationToken()
        steps = threading.Semaphore(0)
        with stop_on_signals(token) as stop:
            token.watch(lambda mode: steps.release())
            say("ready")
            steps.acquire()
            say(token.mode.value)
            steps.acquire()
            token.watch(lambda mode: mode == "kill" and os.write(writer, b"."))
            stay_in_c("reading")
        say(token.mode.value, [each.name for each in stop.received])
    """
    lines, code = converse(program, TERM, INT, TERM)
    assert lines == ["ready", "after_tools", "reading", "kill ['SIGTERM', 'SIGINT', 'SIGTERM']"]
    assert code == 0


@pytest.mark.promise("P1")
def test_a_signal_of_the_programs_own_does_not_keep_the_next_one_from_stopping() -> None:
    program = """
        token = CancellationToken()
        own = threading.Semaphore(0)
        signal.signal(signal.SIGUSR1, lambda *_: own.release())
        with stop_on_signals(token) as stop:
            token.on_cancel(lambda cause: os.write(writer, b"."))
            say("ready")
            own.acquire()
            stay_in_c("reading")
        say(token.cause, [each.name for each in stop.received])
    """
    lines, code = converse(program, signal.SIGUSR1, TERM)
    assert lines == ["ready", "reading", "signal: SIGTERM ['SIGTERM']"]
    assert code == 0


@pytest.mark.promise("P1", "P8")
def test_of_two_blocks_the_inner_one_is_stopped_while_the_main_thread_runs_no_handler() -> None:
    program = """
        outer, inner = CancellationToken(), CancellationToken()
        with stop_on_signals(outer):
            with stop_on_signals(inner):
                for token in (outer, inner):
                    token.on_cancel(lambda cause: os.write(writer, b"."))
                stay_in_c("inner")
            stopped = inner.cancelled, outer.cancelled
            stay_in_c("outer")
        say(stopped, inner.mode.value, outer.mode.value)
    """
    lines, code = converse(program, TERM, TERM)
    assert lines == ["inner", "outer", "(True, False) after_tools after_tools"]
    assert code == 0


@pytest.mark.promise("P1")
def test_an_event_loop_that_handled_signals_in_an_inner_block_leaves_the_outer_one_its_own() -> None:
    program = """
        async def main():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, print)
            loop.remove_signal_handler(signal.SIGUSR1)
        outer = CancellationToken()
        outer.on_cancel(lambda cause: os.write(writer, b"."))
        with stop_on_signals(outer):
            with stop_on_signals(CancellationToken()):
                asyncio.run(main())
            stay_in_c("outer")
        say(outer.cause)
    """
    lines, code = converse(program, TERM)
    assert lines == ["outer", "signal: SIGTERM"]
    assert code == 0


@pytest.mark.promise("P8")
def test_a_block_leaves_the_descriptor_of_an_event_loop_alone_also_when_it_has_the_number_of_an_earlier_block() -> None:
    program = """
        with stop_on_signals(CancellationToken()):
            number = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(number)
        os.dup2(writer, number)
        os.set_blocking(number, False)
        signal.set_wakeup_fd(number)  # as an event loop does
        with stop_on_signals(CancellationToken()):
            say(signal.set_wakeup_fd(-1) == number)
    """
    assert converse(program) == (["True"], 0)


@pytest.mark.promise("P5")
def test_a_block_that_is_never_left_does_not_keep_the_program_from_ending() -> None:
    program = HEADER + "stop_on_signals(CancellationToken()).__enter__()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


TOOL = """
    @tool
    async def pay() -> str:
        say("paying")
        try:
            await asyncio.wait_for(go_on.wait(), 60)
        except asyncio.CancelledError:
            say("cut")
            raise
        return "paid"

    async def main():
        global go_on
        go_on = asyncio.Event()
        agent = Agent(ScriptedModel(Call("pay"), "Done."), tools=[pay])
        run = agent.start("pay")
        class Both:
            def cancel(self, reason="", *, mode, source):
                run.cancel(reason, mode=mode, source=source)
                say("asked", mode.value)
                if {finish}:
                    asyncio.get_running_loop().call_soon_threadsafe(go_on.set)
        with stop_on_signals(Both()):
            receipt = await run.stopped()
        say(receipt.stop_reason, [call.outcome.value for call in receipt.calls], receipt.mode.value)
    asyncio.run(main())
"""


@pytest.mark.promise("P3", "P4")
def test_the_first_signal_lets_a_running_tool_finish() -> None:
    lines, _ = converse(TOOL.format(finish=True), INT)
    assert lines == ["paying", "asked after_tools", "cancelled ['completed'] after_tools"]


@pytest.mark.promise("P1", "P4")
def test_the_second_signal_cuts_a_running_tool() -> None:
    lines, _ = converse(TOOL.format(finish=False), INT, INT)
    assert lines == ["paying", "asked after_tools", "asked now", "cut", "cancelled ['cancelled'] now"]


@pytest.mark.promise("P8")
def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    program = """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        token = CancellationToken()
        with stop_on_signals(token) as stop:
            say("ready")
            say("still here")
            token.wait_sync()
        say([each.name for each in stop.received], signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
    """
    lines, _ = converse(program, INT, TERM)
    assert lines == ["ready", "still here", "['SIGTERM'] True"]


@pytest.mark.promise("P8")
def test_a_block_inside_a_block_gives_the_signals_back() -> None:
    program = """
        outer, inner = CancellationToken(), CancellationToken()
        with stop_on_signals(outer):
            with stop_on_signals(inner):
                say("inner")
                inner.wait_sync()
            say("outer", outer.cancelled)
            outer.wait_sync()
        say(inner.mode.value, outer.mode.value)
    """
    lines, _ = converse(program, INT, INT)
    assert lines == ["inner", "outer False", "after_tools after_tools"]


@pytest.mark.promise("P8")
def test_another_thread_gets_a_clear_error_and_nothing_changes() -> None:
    before = signal.getsignal(INT)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with stop_on_signals(CancellationToken()):
                raise AssertionError
        except ConfigurationError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])
    assert signal.getsignal(INT) is before


@pytest.mark.promise("P8")
def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UnknownMode):
        stop_on_signals(CancellationToken(), modes=["softly"])
    with pytest.raises(ConfigurationError, match="after_tools, now, kill"):
        stop_on_signals(CancellationToken(), modes=[])
    before = signal.getsignal(INT)
    with pytest.raises((ValueError, OSError)), stop_on_signals(CancellationToken(), signals=[INT, signal.SIGKILL]):
        raise AssertionError
    assert signal.getsignal(INT) is before
