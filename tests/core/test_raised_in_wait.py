"""An exception that a signal handler raises while a thread waits for a run: the run stops, and then it goes on."""

import itertools
import signal
import sys
import threading
from contextlib import suppress

import pytest

from quiesce import Agent, CancellationToken, tool
from quiesce._threads.background_loop import close_portals
from quiesce.conversation.validity import faults
from quiesce.hooks import OnStop
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.phases import Phase
from tests.core.raising import Raiser

pytestmark = [
    pytest.mark.promise("P5", "P7"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
]


class Limit(BaseException):
    """What a handler raises that is not an `Exception`."""


class SoftLimit(Exception):
    """What a task queue raises."""


def stalled_agent() -> Agent:
    """No answer ends."""
    agent = Agent(ScriptedModel(then=[Say("Well"), Stall()]))
    agent.causes = []
    agent.hook(OnStop)(lambda event: agent.causes.append(event.cause))
    return agent


def ready_agent() -> Agent:
    agent = Agent(ScriptedModel(then="Fine."))
    agent.causes = []
    return agent


def check_rest(agent: Agent, error: BaseException) -> None:
    """All is at rest, and the next prompt works."""
    assert agent.active_runs == ()
    assert faults(agent.messages) == ()
    for cause in agent.causes:
        assert (cause.source, cause.reason) == ("caller", f"{type(error).__name__} in the thread that waited")
    assert answers_next(agent)
    assert [each.name for each in threading.enumerate() if each.name.startswith("quiesce-sync")] == ["quiesce-sync-1"]


def answers_next(agent: Agent) -> bool:
    """Whether the next prompt is taken, and its run is stopped by nobody but us."""
    run = agent.start("again")
    run.cancel("enough")
    result = run.wait(20)
    return result.text == "Fine." or result.receipt.cause.reason == "enough"


def busy(agent: Agent):
    """For `ready`: the model talks, or a tool runs."""
    return lambda: any(run.phase in (Phase.STREAMING, Phase.ACTING) for run in agent.active_runs)


def call(agent: Agent) -> None:
    agent("go")


def start_and_wait(agent: Agent) -> None:
    agent.start("go").wait()


def stream(agent: Agent) -> None:
    for _ in agent.stream("go"):
        pass


# --- At one place -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Limit, SoftLimit, TimeoutError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("use", [call, start_and_wait, stream])
def test_what_a_signal_handler_raises_stops_the_run(use, error) -> None:
    agent, raised = stalled_agent(), error("now")
    with pytest.raises(error) as caught:
        Raiser(raised, sys.maxsize, ready=busy(agent)).play(lambda: use(agent))
    assert caught.value is raised
    told = (
        ("signal", "Ctrl-C")
        if error is KeyboardInterrupt
        else ("caller", f"{error.__name__} in the thread that waited")
    )
    assert [(cause.source, cause.reason) for cause in agent.causes] == [told]
    assert agent.active_runs == ()
    assert answers_next(agent)


def test_a_handle_has_the_receipt_afterwards() -> None:
    agent = stalled_agent()
    run = agent.start("go")
    with pytest.raises(SoftLimit):
        Raiser(SoftLimit(), sys.maxsize, ready=busy(agent)).play(run.wait)
    receipt = run.wait(0).receipt
    assert (receipt.cause.source, receipt.mode, receipt.still_running) == ("caller", "now", ())


def test_a_wait_that_is_over_by_its_own_timeout_leaves_the_run_alone() -> None:
    agent = stalled_agent()
    run = agent.start("go")
    with pytest.raises(TimeoutError):
        run.wait(0.001)
    assert not run.done
    run.cancel()
    assert run.wait().receipt.cause.source == "user"


@pytest.mark.parametrize(("first", "second", "out"), [(SoftLimit, SoftLimit, 0), (SoftLimit, KeyboardInterrupt, 1)])
def test_a_second_one_kills_and_the_graver_one_is_raised(first, second, out) -> None:
    heard = []

    @tool(on_stop="finish", grace=1000)
    async def work() -> str:
        import asyncio

        await asyncio.get_running_loop().create_future()
        return "never"

    agent = Agent(ScriptedModel([Call("work")], then="Fine."), tools=[work])
    agent.hook(OnStop)(lambda event: heard.append(event.cause))
    errors = (first("first"), second("second"))
    with pytest.raises((first, second)) as caught:
        Raiser(
            errors[0],
            sys.maxsize // 2,
            again=(errors[1], sys.maxsize // 2),
            ready=lambda: True if heard else busy(agent)(),
        ).play(lambda: agent("go"))
    assert caught.value is errors[out]
    assert [cause.reason for cause in heard][:1] == ["SoftLimit in the thread that waited"]
    assert agent.active_runs == ()
    assert agent("again").text == "Fine."


def test_one_who_steered_anothers_run_leaves_it_running() -> None:
    agent = Agent(ScriptedModel([Say("Well"), Stall()], [Say("Well"), Stall()], then="Fine."))
    run = agent.start("go")
    with pytest.raises(SoftLimit):
        Raiser(SoftLimit(), sys.maxsize, ready=busy(agent)).play(lambda: agent("and this", on_busy="steer"))
    assert not run.done
    run.cancel("enough")
    assert run.wait().receipt.cause.reason == "enough"


# --- At every step ----------------------------------------------------------------------------------------------------

# `make test` takes every seventh step, `make proof` each one.
stride = pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.proof)], ids=["sample", "every_step"])


@stride
@pytest.mark.parametrize("kind", [stalled_agent, ready_agent])
@pytest.mark.parametrize("use", [call, stream])
def test_an_exception_before_any_step_of_the_wait(use, kind, stride) -> None:
    """What is asked for at each of them: the exception itself, no active run, one background, and a next prompt."""
    call(ready_agent())
    for step in itertools.count(0, stride):
        agent, error = kind(), Limit(step)
        raiser = Raiser(error, step, ready=busy(agent))
        with suppress(Limit) if kind is ready_agent else pytest.raises(Limit):
            raiser.play(lambda: use(agent))
        try:
            check_rest(agent, error)
        except BaseException as failure:
            failure.add_note(f"step {step}: {raiser.where}")
            raise
        if not raiser.reached:  # it ended, or blocked, before
            break
    assert step > 200


@stride
def test_an_exception_before_any_step_of_the_first_wait_of_a_process(stride) -> None:
    for step in itertools.count(0, stride):
        close_portals()
        agent, error = stalled_agent(), Limit(step)
        raiser = Raiser(error, step, ready=busy(agent))
        with pytest.raises(Limit) as caught:
            raiser.play(lambda: call(agent))
        assert caught.value is error
        check_rest(agent, error)
        if not raiser.reached:
            break
    assert step > 200
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@stride
def test_an_exception_before_any_step_of_starting(stride) -> None:
    """Whoever is interrupted in `start()` has no handle: the run does not go on. What it returned is the caller's."""
    call(ready_agent())
    for step in itertools.count(0, stride):
        agent, error, handles = stalled_agent(), Limit(step), []
        raiser = Raiser(error, step)
        with suppress(Limit):
            raiser.play(lambda: handles.append(agent.start("go")))
        left = [run for run in agent.active_runs if run not in handles]
        if left:  # only after the last step that is ours: on the way back to the caller
            assert raiser.where[0].startswith("Agent.start:"), raiser.where
        for run in agent.active_runs:
            run.cancel("enough")
            run.wait()
        if not raiser.reached:
            break
    assert step > 200


@stride
def test_an_exception_before_any_step_of_an_undo(stride) -> None:
    undone = []

    @tool
    async def work() -> str:
        return "done"

    @work.undo
    async def back() -> None:
        undone.append(1)

    for step in itertools.count(0, stride):
        undone.clear()
        result = Agent(ScriptedModel([Call("work")], then="Fine."), tools=[work])("go")
        raiser = Raiser(Limit(step), step)
        with suppress(Limit):
            raiser.play(result.undo_sync)
        result.undo_sync()
        assert undone == [1]
        if not raiser.reached:
            break
    assert step > 200


def test_an_exception_before_any_step_of_waiting_for_a_token() -> None:
    for step in itertools.count():
        token, error = CancellationToken(), Limit(step)
        raiser = Raiser(error, step)
        with pytest.raises(Limit) as caught:
            raiser.play(token.wait_sync)
        assert caught.value is error
        assert not token.cancelled
        assert token.cancel("later")
        if not raiser.reached:
            break
    assert step > 100


@pytest.mark.proof
def test_a_second_exception_before_any_step_after_the_first() -> None:
    """The first comes while the thread is blocked, as a real signal."""
    call(ready_agent())
    for step in itertools.count():
        agent, first, second = stalled_agent(), Limit("first"), Limit("second")
        raiser = Raiser(first, sys.maxsize // 2, again=(second, step), ready=busy(agent))
        with pytest.raises(Limit):
            raiser.play(lambda agent=agent: call(agent))
        try:
            check_rest(agent, first)
        except BaseException as failure:
            failure.add_note(f"step {step}: {raiser.where}")
            raise
        if not raiser.reached:
            break
    assert step > 200
