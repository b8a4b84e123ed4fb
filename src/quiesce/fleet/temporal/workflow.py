"""The workflow of a run: one activity for each model call and each tool call, and the conversation between them.

It runs outside Temporal's sandbox: no code of the user is in it, and what it calls of Quiesce reads no clock, file or
random number.

    model call -> its tool calls, at once or in their order -> model call ... -> the receipt

A stop cancels the activities that its mode is to cut, by Temporal's own cancellation, and waits for what they have
kept.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError  # noqa: A004

from ...cancellation import Cause, Mode
from ...conversation.conversation import TASK
from ...errors import InvalidAnswer
from ...usage.ledger import LedgerEntry
from ..answers import decoded_answers
from .progress import RunProgress
from .records import (
    ANSWER,
    MODEL_CALL,
    MORE_URGENT,
    NOT_BEGUN,
    STOP,
    TOOL_CALL,
    WORKFLOW,
    HeartbeatDetails,
    StepInput,
    StepResult,
    StopRequest,
    TemporalRun,
    WorkflowInput,
    activity_queue,
    plain,
    read,
)

# Temporal wants a bound for each activity. A worker that is lost is noticed by its heartbeat, long before that.
_LONGEST_STEP: Final = timedelta(days=7)


class _Lost(NamedTuple):
    """The worker of an activity is lost; these are the requests that it had sent."""

    entries: tuple[LedgerEntry, ...]


class _NotBegun(NamedTuple):
    """A worker was given an activity and has not begun it: it was lost or frozen by then, or is shutting down."""


class _Failed(NamedTuple):
    """An activity could not do its work."""

    error: str


class _Refused(NamedTuple):
    """The answer to what a tool call asked does not fit."""

    error: str


class _NotStarted(NamedTuple):
    """An activity was cancelled before a worker had it."""


_Unfinished: TypeAlias = _Lost | _NotBegun | _Failed | _Refused | _NotStarted


@workflow.defn(name=WORKFLOW, sandboxed=False)
class RunWorkflow:
    """One run."""

    @workflow.init
    def __init__(self, given: dict[str, Any]) -> None:
        self._input: Final = read(given, WorkflowInput)
        self._progress: Final = RunProgress(workflow.info().workflow_id, self._input)
        self._stop: Cause | None = None
        self._mode: Mode | None = None
        self._answers: Final[dict[str, Any]] = {}
        self._running: Final[dict[workflow.ActivityHandle[Any], Mode]] = {}
        """The activities under way, each with the most patient mode that cuts it."""

    @workflow.run
    async def run(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  (__init__ has read it)
        """Run to the end; Temporal's cancellation of the workflow is a stop, and not the end of this."""
        turns = asyncio.create_task(self._turns())
        while not turns.done():
            try:
                await asyncio.shield(turns)
            except asyncio.CancelledError:
                reason = workflow.cancellation_reason() or "Temporal has cancelled the workflow"
                self._request_stop(Cause("remote", reason, at=workflow.time(), clock=0.0))
        return plain(turns.result())

    # --- Stopping -------------------------------------------------------------------------------------------------

    @workflow.signal(name=STOP)
    def on_stop(self, given: dict[str, Any]) -> None:
        """Stop the run. A later stop can only be more urgent."""
        try:
            self._request_stop(read(given, StopRequest).cause)
        except ValidationError as error:  # Temporal would repeat a step that raises it, for ever
            workflow.logger.warning("a stop cannot be read: %s", error)

    def _request_stop(self, cause: Cause) -> None:
        if self._mode is not None and self._mode >= cause.mode:
            return
        self._stop, self._mode = self._stop or cause, cause.mode
        workflow.upsert_memo({"stop": cause.mode.value})
        self._cut()

    def _cut(self) -> None:
        """Cancel the activities that are to be cut now: by the stop, or because the run has failed."""
        for handle, cut_by in tuple(self._running.items()):
            if self._wants(cut_by) or self._progress.reason:
                handle.cancel()

    def _wants(self, mode: Mode) -> bool:
        return self._mode is not None and self._mode >= mode

    @workflow.update(name=MORE_URGENT, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def more_urgent(self, than: str) -> str:
        """Wait until the stop is more urgent than this mode; gives its mode. For an activity that was cancelled."""
        await workflow.wait_condition(lambda: self._mode is not None and self._mode > Mode(than))
        assert self._mode is not None
        return self._mode.value

    # --- Running --------------------------------------------------------------------------------------------------

    async def _turns(self) -> TemporalRun:
        progress = self._progress
        while not progress.reason and not self._wants(Mode.AFTER_TURN):
            await self._call_model()
            if progress.reason or self._wants(Mode.AFTER_TOOLS):
                break
            await asyncio.gather(*(self._call_tool(position) for position in range(len(progress.calls))))
        return self._ended()

    async def _call_model(self) -> None:
        again = True
        while again and not self._wants(Mode.AFTER_TOOLS):
            losses = self._progress.losses
            match await self._step(MODEL_CALL, self._progress.model_call(), Mode.AFTER_TOOLS):
                case StepResult() as result:
                    again = self._progress.take_model_call(result)
                case _Lost(entries):
                    again = self._progress.lose_model_call(entries, losses)
                case _NotBegun():
                    again = self._progress.leave_unbegun()
                case _Failed(error) | _Refused(error):
                    again = self._progress.fail(error) or False
                case _NotStarted():
                    again = False

    async def _call_tool(self, position: int) -> None:
        progress, answers = self._progress, dict[str, Any]()
        await workflow.wait_condition(lambda: progress.may_start(position) or self._is_stopping)
        while not self._is_stopping:
            step, losses = progress.tool_call(position, answers), progress.losses
            match await self._step(TOOL_CALL, step, Mode.NOW):
                case StepResult() as result:
                    again = progress.take_tool_call(position, step, result)
                case _Lost(entries):
                    again = progress.lose_tool_call(position, entries, losses)
                case _NotBegun():
                    again = progress.leave_unbegun()
                case _Failed(error):
                    again = progress.fail(error) or False
                case _Refused(error):
                    workflow.logger.warning("an answer is refused: %s", error)
                    again = False
                case _NotStarted():
                    again = False
            self._cut()  # the others, when this call is why the run ends
            asked = progress.calls[position].interrupts
            if not again and not asked:
                return
            if not again:
                answers = await self._answered({each.id for each in asked})

    @property
    def _is_stopping(self) -> bool:
        """Whether no more tools are to start."""
        return bool(self._progress.reason) or self._wants(Mode.AFTER_TOOLS)

    async def _step(self, activity: str, step: StepInput, cut_by: Mode) -> StepResult | _Unfinished:
        """Run an activity, once: what is to be repeated is decided here, where it is known what was lost."""
        handle = workflow.start_activity(
            activity,
            plain(step),
            task_queue=activity_queue(self._input.queue, self._input.agent),
            start_to_close_timeout=_LONGEST_STEP,
            heartbeat_timeout=timedelta(seconds=self._input.lease),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._running[handle] = cut_by
        try:
            return read(await handle, StepResult)
        except ActivityError as error:
            return _outcome_of(error)
        except asyncio.CancelledError:
            if handle not in self._running:  # the workflow is being evicted
                raise
            return _NotStarted()
        finally:
            self._running.pop(handle, None)

    # --- A person's answers ---------------------------------------------------------------------------------------

    @workflow.signal(name=ANSWER)
    def on_answer(self, answers: dict[str, Any]) -> None:
        """Answers to what tool calls ask, by the id of the interrupt."""
        try:
            decoded_answers(answers)
        except ValidationError as error:
            workflow.logger.warning("an answer cannot be read: %s", error)
        else:
            self._answers.update(answers)

    async def _answered(self, asked: set[str]) -> dict[str, Any]:
        """Wait for answers to some of this, or for a stop in any mode."""
        self._show_interrupts()
        await workflow.wait_condition(lambda: bool(asked & self._answers.keys()) or self._wants(Mode.AFTER_TURN))
        return {each: self._answers.pop(each) for each in sorted(asked & self._answers.keys())}

    def _show_interrupts(self) -> None:
        workflow.upsert_memo({"interrupts": [plain(each) for each in self._progress.interrupts]})

    # --- The end --------------------------------------------------------------------------------------------------

    def _ended(self) -> TemporalRun:
        progress, messages = self._progress, self._progress.sealed()
        stop = None if progress.reason or self._stop is None or self._mode is None else (self._stop, self._mode)
        reason = progress.reason or "cancelled"
        receipt = progress.receipts.receipt(reason, stop, workflow.time(), messages, progress.values.get(TASK))
        return TemporalRun(
            workflow.info().workflow_id,
            self._input.agent,
            self._input.owner,
            "crashed" if reason == "crashed" else "ended",
            reason,
            progress.error,
            "" if self._mode is None else self._mode.value,
            messages=messages,
            before=len(self._input.messages),
            receipt=receipt,
        )


def _outcome_of(error: ActivityError) -> _Unfinished:
    match error.cause:
        case CancelledError():
            return _NotStarted()
        case TimeoutError(last_heartbeat_details=details):
            return _Lost(read(details[0], HeartbeatDetails).entries) if details else _NotBegun()
        case ApplicationError() as cause:
            kinds = {NOT_BEGUN: _NotBegun(), InvalidAnswer.__name__: _Refused(cause.message)}
            return kinds.get(cause.type or "", _Failed(cause.message))
        case cause:
            return _Failed(str(cause or error))
