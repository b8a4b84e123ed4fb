"""The injector must find bugs: each test here breaks the core on purpose, and the broken promise must be named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quiesce.cancellation import CancellationToken, Mode, StopScope
from quiesce.conversation.answer import AnswerBuilder
from quiesce.messages import Outcome
from quiesce.run import settle
from quiesce.run.events.fanout import EventFanout
from quiesce.run.handle import Run
from quiesce.run.spending import Spending
from quiesce.run.state import RunState
from quiesce.run.turn import TurnInProgress
from quiesce.testing import StopViolation, stop_everywhere
from quiesce.tools.call import CallInProgress
from quiesce.tools.thread import ThreadCall

from .workloads import WORKLOADS

pytestmark = pytest.mark.promise("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8")


def caught(promise: str, workload: str, **options: Any) -> None:
    with pytest.raises(StopViolation, match=rf"{promise}: ") as violation:
        stop_everywhere(WORKLOADS[workload], name=workload, **options)
    assert "QUIESCE_REPLAY=" in str(violation.value)
    assert "seed 0" in str(violation.value)


def test_a_stop_that_the_scope_ignores_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopScope, "_on_request", lambda self, mode: None)
    caught("P1", "text")


def test_a_grace_that_is_not_kept_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallInProgress, "request_stop", lambda self, mode: None)
    monkeypatch.setattr(CallInProgress, "grace", lambda self, mode: 60.0)
    caught("P1", "one_tool")


def test_a_call_without_a_result_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    original = settle.close
    monkeypatch.setattr(settle, "close", lambda turn, before, note: original(turn[:1], before, note))
    caught("P2", "one_tool")


def test_no_closing_message_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "close", lambda turn, before, note: turn)
    caught("P2", "text")


def test_a_turn_that_is_committed_in_two_steps_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(state: RunState) -> Any:
        answer = state.turn.answer
        assert answer is not None
        state.conversation.append(answer)
        return await original(state)

    from quiesce.phases import Phase
    from quiesce.run.loop import PHASES

    original = PHASES[Phase.ACTING]
    monkeypatch.setitem(PHASES, Phase.ACTING, act)
    caught("P2", "one_tool")


def test_words_that_are_told_before_they_are_kept_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    original = AnswerBuilder.content
    monkeypatch.setattr(AnswerBuilder, "content", lambda self: original(self) if self.complete else ())
    caught("P3", "text")


def test_a_result_that_is_thrown_away_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def settled_result(self: CallInProgress) -> Any:
        from quiesce.conversation.sealing import unfinished

        return unfinished(self.call, Outcome.CANCELLED)

    original = TurnInProgress.commit

    def commit(self: TurnInProgress, turn: Any) -> None:
        for record in self.batch.records if self.batch is not None else ():
            if record._work_token.cancelled and record.result is not None:
                record.result = settled_result(record)
        original(self, self.so_far() or turn)

    monkeypatch.setattr(TurnInProgress, "commit", commit)
    caught("P[234]", "three_parallel_tools")


def test_cancelled_for_what_never_started_is_a_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CallInProgress.receipt

    def receipt(self: CallInProgress) -> Any:
        from msgspec import structs

        line = original(self)
        lie = line.outcome is Outcome.NEVER_STARTED
        return structs.replace(line, outcome=Outcome.CANCELLED) if lie else line

    monkeypatch.setattr(CallInProgress, "receipt", receipt)
    caught("P4", "sequential_tools")


def test_an_abandoned_tool_that_is_not_named_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "still_running", lambda self: ())
    caught("P5", "tools_that_may_be_left")


def test_a_task_that_is_left_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    original = settle.seal

    def seal(state: RunState) -> Any:
        state.leaked = asyncio.get_running_loop().create_task(asyncio.sleep(1000), name="leaked")  # type: ignore[attr-defined]
        return original(state)

    monkeypatch.setattr(settle, "seal", seal)
    caught("P5", "text")


def test_an_entry_that_stays_open_is_not_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Spending.close_entry
    monkeypatch.setattr(Spending, "close_entry", lambda self, how: None if how == "hung_up" else original(self, how))
    caught("P6", "text")


def test_two_ends_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EventFanout.close

    def close(self: EventFanout, last: Any) -> None:
        original(self, last)
        self.push(last)

    monkeypatch.setattr(EventFanout, "close", close)
    caught("P7", "text")


def test_a_swallowed_cancellation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def owned(self: Run) -> Any:
        try:
            return await self.result()
        except asyncio.CancelledError:
            self.cancel(source="caller")
            return await self.result()

    monkeypatch.setattr(Run, "owned", owned)
    caught("P7", "text", sources=["task"])


def test_a_finished_run_that_is_called_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_finish_if_answered", lambda state: None)
    caught("P7", "text", sources=["line"])


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


def test_a_stop_that_stays_for_the_next_prompt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Run.cancel

    def cancel(self: Run, *args: Any, **kwargs: Any) -> bool:
        self.state.config.state["sticky"] = True
        return original(self, *args, **kwargs)

    def wants(self: CancellationToken, mode: Mode) -> bool:
        return sticky.get("sticky", False) or original_wants(self, mode)

    sticky: dict[str, Any] = {}
    original_wants = CancellationToken.wants
    monkeypatch.setattr(Run, "cancel", cancel)
    monkeypatch.setattr(CancellationToken, "wants", wants)
    original_course = RunState.__init__

    def init(self: RunState, *args: Any) -> None:
        nonlocal sticky
        original_course(self, *args)
        sticky = self.config.state

    monkeypatch.setattr(RunState, "__init__", init)
    caught("P[78]", "text", sources=["loop"])


def test_a_thread_outcome_that_is_dropped_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ThreadCall._work

    def work(self: ThreadCall) -> None:
        original(self)
        self.outcome = None

    monkeypatch.setattr(ThreadCall, "_work", work)
    with pytest.raises(StopViolation):
        stop_everywhere(WORKLOADS["sync_tools"], sources=["loop"])
