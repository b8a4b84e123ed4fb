"""The handle of a run: waiting from the right place, Ctrl-C, signals, and ends that should not happen."""

import asyncio
import os
import signal
import sys
import threading

import pytest

import quiesce.run.handle
import quiesce.run.loop
from quiesce import Agent, CancellationToken, Mode, tool
from quiesce.cancellation.signals import stop_on_signals
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, RunError, UnknownMode
from quiesce.messages import UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from tests.core.kit import Record, answers, outcomes, scripted

pytestmark = pytest.mark.promise("P1", "P7")
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


async def test_waiting_in_the_runs_own_loop_is_refused():
    agent = Agent(scripted())
    run = agent.start("go")
    with pytest.raises(ConfigurationError, match="would wait for ever"):
        run.wait()
    assert (await run).stop_reason == "end_turn"


async def test_events_can_be_read_only_in_the_runs_own_loop():
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    run = await asyncio.to_thread(agent.start, "go")
    with pytest.raises(ConfigurationError, match="only in the event loop"):
        run.events()
    run.cancel()
    assert (await asyncio.to_thread(run.wait)).stop_reason == "cancelled"
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_something_that_breaks_inside_the_run_is_a_failure_not_a_stop(monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("in the loop")

    monkeypatch.setattr(quiesce.run.loop, "build_request", broken)
    agent = Agent(scripted())
    with pytest.raises(RunError, match="ZeroDivisionError: in the loop"):
        await agent.start("go")
    monkeypatch.undo()
    assert faults(agent.messages) == ()
    await answers(agent)


async def test_a_run_whose_settling_breaks_ends_all_the_same(monkeypatch):
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("while settling")

    monkeypatch.setattr(quiesce.run.handle, "settle", broken)
    agent = Agent(scripted("Hello."))
    run = agent.start("go")
    record = Record(run)
    with pytest.raises(ZeroDivisionError):
        await run
    monkeypatch.undo()
    assert faults(agent.messages) == ()
    assert isinstance(agent.messages[0], UserMessage)
    assert [type(event).__name__ for event in record.events].count("RunEnded") == 1
    await answers(agent)


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------


def interrupt_once_it_waits() -> None:
    """Send SIGINT as soon as the main thread is blocked in `Run.wait()`."""

    def waiting() -> bool:
        frame, names = sys._current_frames()[threading.main_thread().ident], []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return names[0] == "wait" and "wait_in_thread" in names

    def work() -> None:
        tick = threading.Event()
        while not waiting():
            tick.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=work).start()


@posix
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_waiting(times):
    @tool(on_stop="finish" if times == 2 else "cancel", grace=1000)
    async def work() -> str:
        interrupt_once_it_waits()
        await asyncio.get_running_loop().create_future()

    agent = Agent(scripted([Call("work")]), tools=[work])
    run = agent.start("go")
    from quiesce.hooks import OnStop

    if times == 2:
        agent.hook(OnStop)(lambda event: interrupt_once_it_waits())
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    result = run.wait(0)
    assert (result.stop_reason, result.receipt.cause.source) == ("cancelled", "signal")
    assert result.receipt.mode == ("kill" if times == 2 else "now")
    assert outcomes(result) == {"work": "cancelled"}


# --- Signals --------------------------------------------------------------------------------------------------------


@posix
def test_each_signal_is_more_urgent_and_the_last_one_gives_way():
    token = CancellationToken()
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(token) as stop:
        modes = []
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            modes.append(token.mode)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert modes == [Mode.AFTER_TOOLS, Mode.NOW, Mode.KILL]
    assert (token.cause.source, token.cause.reason) == ("signal", "SIGINT")
    assert len(stop.received) == 4
    assert signal.getsignal(signal.SIGINT) is before


@posix
def test_signals_that_are_ignored_stay_ignored_and_handlers_come_back():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        token = CancellationToken()
        with stop_on_signals(token, signals=[signal.SIGUSR1]):
            signal.raise_signal(signal.SIGUSR1)
        assert not token.cancelled
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(OSError), stop_on_signals(token, signals=[signal.SIGUSR1, signal.SIGKILL]):
        pass
    assert signal.getsignal(signal.SIGUSR1) is before


def test_signal_handlers_that_cannot_work():
    token = CancellationToken()
    with pytest.raises(ConfigurationError):
        stop_on_signals(token, modes=[])
    with pytest.raises(UnknownMode):
        stop_on_signals(token, modes=["softly"])
    errors = []

    def elsewhere() -> None:
        try:
            stop_on_signals(token).__enter__()
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
