"""The injector must find bugs: each test here breaks the core on purpose, and the broken promise must be named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce.cancellation import CancellationToken, StopScope
from quiesce.conversation.answer import AnswerBuilder
from quiesce.messages import Outcome, ToolMessage
from quiesce.run import foreign_tasks, settle, stream_timeouts
from quiesce.run.events.fanout import EventFanout
from quiesce.run.handle import Run, wait_for
from quiesce.run.spending import Spending
from quiesce.run.state import RunState
from quiesce.run.turn import TurnInProgress
from quiesce.testing import StopViolation, stop_everywhere
from quiesce.tools.call import CallInProgress
from quiesce.tools.thread import ThreadCall

from .sources import SOME_POINTS, read_by
from .workloads import WORKLOADS

# The workloads in which mutants are looked for.
CONTROLS = (
    "text",
    "one_tool",
    "three_parallel_tools",
    "sequential_tools",
    "tools_that_may_be_left",
    "two_runs_of_one_agent",
    "sync_tools",
    "stall",
)


def caught(promise: str, workload: str, **options: Any) -> None:
    """The mutant passes without a stop, and breaks the promise at a numbered point of an injected one."""
    assert workload in CONTROLS, "the control below must show that this workload passes without a mutation"
    with pytest.raises(StopViolation, match=rf"{promise}: ") as violation:
        stop_everywhere(WORKLOADS[workload], name=workload, **options)
    injection = violation.value.injection
    assert injection is not None, f"this fails without a stop: {violation.value}"
    assert injection.point >= 1
    assert f"QUIESCE_REPLAY={injection}" in str(violation.value)
    assert "seed 0" in str(violation.value)


@pytest.mark.parametrize("workload", CONTROLS)
@pytest.mark.promise("P1", "P2")
def test_without_a_mutation_nothing_is_caught(workload: str) -> None:
    """At some of the points; at all of them in `test_stop_at_every_point_from_every_source`, in `make proof`."""
    report = stop_everywhere(WORKLOADS[workload], stride=SOME_POINTS, name=workload)
    assert report.runs > 100 // SOME_POINTS


@pytest.mark.promise("P1")
def test_a_stop_that_the_scope_ignores_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopScope, "_on_request", lambda self, mode: None)
    caught("P1", "text")


@pytest.mark.promise("P1")
def test_a_grace_that_is_not_kept_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallInProgress, "request_stop", lambda self, mode: 60.0)
    caught("P1", "one_tool")


@pytest.mark.promise("P2")
def test_a_call_without_a_result_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    original = settle.close_turn
    monkeypatch.setattr(settle, "close_turn", lambda turn, before, note: original(turn[:1], before, note))
    caught("P2", "one_tool")


@pytest.mark.promise("P2")
def test_no_closing_message_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "close_turn", lambda turn, before, note: turn)
    caught("P2", "text")


@pytest.mark.promise("P2")
def test_a_turn_that_is_committed_in_two_steps_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(state: RunState) -> Any:
        answer = state.turn.answer
        assert answer is not None
        if state.token.cancelled:
            state.claim.conversation.append(answer)
        return await original(state)

    from quiesce.phases import Phase
    from quiesce.run.loop import PHASES

    original = PHASES[Phase.ACTING]
    monkeypatch.setitem(PHASES, Phase.ACTING, act)
    caught("P2", "one_tool")


@pytest.mark.promise("P3")
def test_words_that_are_told_before_they_are_kept_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    original = AnswerBuilder.content
    monkeypatch.setattr(AnswerBuilder, "content", lambda self: original(self) if self.complete else ())
    caught("P3", "text")


@pytest.mark.promise("P3")
def test_a_result_that_is_thrown_away_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from msgspec import structs

    original = TurnInProgress.commit

    def lose(message: Any) -> Any:
        if not isinstance(message, ToolMessage):
            return message
        lost = (structs.replace(each, outcome=Outcome.CANCELLED, is_error=True) for each in message.results)
        return structs.replace(message, results=tuple(lost))

    def commit(self: TurnInProgress, turn: Any) -> None:
        stopped = self.view.batch is not None and any(record._work_token.cancelled for record in self.view.batch.calls)
        original(self, tuple(lose(message) for message in turn) if stopped else turn)

    monkeypatch.setattr(TurnInProgress, "commit", commit)
    caught("P3", "three_parallel_tools")


@pytest.mark.promise("P4")
def test_cancelled_for_what_never_started_is_a_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CallInProgress.receipt

    def receipt(self: CallInProgress) -> Any:
        from msgspec import structs

        line = original(self)
        lie = line.outcome is Outcome.NEVER_STARTED
        return structs.replace(line, outcome=Outcome.CANCELLED) if lie else line

    monkeypatch.setattr(CallInProgress, "receipt", receipt)
    caught("P4", "sequential_tools")


@pytest.mark.promise("P5")
def test_an_abandoned_tool_that_is_not_named_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "still_running", lambda self: ())
    caught("P5", "tools_that_may_be_left")


@pytest.mark.promise("P5")
def test_a_task_that_is_left_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    original = settle.seal
    leaked: list[asyncio.Task[None]] = []

    def seal(state: RunState) -> Any:
        if state.token.cancelled:
            leaked.append(asyncio.get_running_loop().create_task(asyncio.sleep(1000), name="leaked"))
        return original(state)

    monkeypatch.setattr(settle, "seal", seal)
    caught("P5", "text")


@pytest.mark.promise("P6")
def test_an_entry_that_stays_open_is_not_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Spending.close_entry
    monkeypatch.setattr(Spending, "close_entry", lambda self, how: None if how == "hung_up" else original(self, how))
    caught("P6", "text")


@pytest.mark.promise("P7")
def test_two_ends_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EventFanout.close

    def close(self: EventFanout, last: Any) -> None:
        if last.stop_reason == "cancelled":
            self.push(last)
        original(self, last)

    monkeypatch.setattr(EventFanout, "close", close)
    caught("P7", "text")


@pytest.mark.promise("P7")
def test_a_swallowed_cancellation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def result(self: Run) -> Any:
        try:
            return await wait_for(self)
        except asyncio.CancelledError:
            self.cancel(source="caller")
            return await wait_for(self)

    monkeypatch.setattr(Run, "_result", result)
    caught("P7", "text", sources=["task"])


@pytest.mark.promise("P5")
@pytest.mark.parametrize("source", ["stop_and_reset", "stop_then_reset", "reset_then_stop"])
def test_an_error_that_is_never_taken_is_found(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection breaks as the run is stopped: "Task exception was never retrieved"."""
    monkeypatch.setattr(foreign_tasks, "_take_error", lambda task: None)
    with read_by("task"):
        caught("P5", "text", sources=[source])


# A Ctrl-C between a coroutine and its task: Python warns that the coroutine was never awaited, which is so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.promise("P1")
def test_a_ctrl_c_in_a_timer_that_the_run_does_not_hear_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_timeouts, "stopping", lambda callback, stop: callback)
    caught("P1", "stall", sources=["ctrl_c"], distinct=True, stride=3)


@pytest.mark.promise("P7")
def test_a_finished_run_that_is_called_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_finish_if_answered", lambda state: None)
    caught("P7", "text", sources=["line"], stride=3)


@pytest.mark.promise("P8")
def test_a_stop_that_reaches_the_other_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody: list[CancellationToken] = []
    original_init, original_spread = CancellationToken.__init__, CancellationToken._spread

    def init(self: CancellationToken) -> None:
        original_init(self)
        everybody.append(self)

    def spread(self: CancellationToken, cause: Any) -> bool:
        changed = [original_spread(token, cause) for token in (self, *everybody)]
        return any(changed)

    monkeypatch.setattr(CancellationToken, "__init__", init)
    monkeypatch.setattr(CancellationToken, "_spread", spread)
    caught("P8", "two_runs_of_one_agent", sources=["loop"])


@pytest.mark.promise("P8")
def test_a_stop_that_stays_for_the_next_prompt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original_cancel, original_init = Run.cancel, RunState.__init__

    def cancel(self: Run, *args: Any, **kwargs: Any) -> bool:
        self._state.config.state["stopped"] = True
        return original_cancel(self, *args, **kwargs)

    def init(self: RunState, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        if self.config.state.get("stopped"):
            self.token.cancel("left over")

    monkeypatch.setattr(Run, "cancel", cancel)
    monkeypatch.setattr(RunState, "__init__", init)
    caught("P8", "text", sources=["loop"])


@pytest.mark.promise("P3")
def test_a_thread_outcome_that_is_dropped_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    original_wait, original_cancel = ThreadCall.wait, Run.cancel
    stopped: list[Run] = []

    def cancel(self: Run, *args: Any, **kwargs: Any) -> bool:
        stopped.append(self)
        return original_cancel(self, *args, **kwargs)

    async def wait(self: ThreadCall) -> Any:
        value = await original_wait(self)
        if stopped:
            raise asyncio.CancelledError
        return value

    monkeypatch.setattr(Run, "cancel", cancel)
    monkeypatch.setattr(ThreadCall, "wait", wait)
    caught("P3", "sync_tools", sources=["loop"])
