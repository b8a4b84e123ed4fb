"""One tool call: from the model's request to its result and its line on the receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._threads.tasks import start_task
from ..cancellation import Mode, Source
from ..cancellation.raised import ENDS_PROGRAM
from ..errors import ToolError
from ..events import InterruptRaised, ToolStarted
from ..interrupts import InterruptSignal
from ..messages import Outcome, ToolCall, ToolResult
from ..receipt import LateOutcome
from .call_record import CallRecord, CallStage
from .closed_loop import close_coroutine
from .output import (
    as_result_of,
    completed_result,
    describe_error,
    failed_result,
    well_formed_value,
    with_changed_arguments,
)
from .policy import FINAL_GRACE
from .result_text import succeeded
from .thread import ThreadOutcome
from .tool import Tool
from .tool_return import ToolReturn
from .undo.compensation import Compensation
from .undo.effect import completed_effect


class CallInProgress(CallRecord):
    """One call while it is made. Its result is written in one step, as soon as it is known, and is never lost later."""

    __slots__ = ()

    # --- Running ------------------------------------------------------------------------------------------------

    def start(self, on_done: Callable[[], None]) -> None:
        """Begin, in a task of its own. `on_done` is called, once, when the call needs no more waiting for."""
        self._on_done = on_done
        self.stage = CallStage.PREPARING
        self.stop.task = self.task = start_task(self._run(), name=f"quiesce tool {self.call.name} {self.call.id}")
        self.task.add_done_callback(self._on_task_end)

    async def _run(self) -> None:
        try:
            has_middleware = self._host.has_middleware
            replacement = await self._host.before_tool(self.questions.call, self.questions)
            if replacement is not None:
                self._finish(replacement)
            elif has_middleware:
                await self._run_through_middleware()
            else:
                await self._run_tool()
        except InterruptSignal as signal:
            self._suspend(signal)
        except ENDS_PROGRAM as error:  # at once: the other calls of the turn must not begin
            self._stop_run(error)
            raise
        result = self.result
        if result is not None and self.times.abandoned is None:
            shown = await self._host.after_tool(self.call, result)
            if shown is not result:
                self.result = self._host.fit_result(self.tool, shown)
            self.announce()

    async def _run_through_middleware(self) -> None:
        """Run the tool inside the middleware, which may change the call, answer instead, or change the result.

        Once the tool has a result, that stands until the middleware has returned another one.
        """
        try:
            value = await self._host.through_middleware(self.questions.call, self.tool, self._run_once)
        except Exception as error:
            replacement = failed_result(self.call, describe_error(error))
        else:
            if value is self.result:
                return
            made = as_result_of if isinstance(value, ToolResult) else completed_result
            replacement = made(self.call, value)
        if self.result is None:
            self._finish(replacement)
        elif self.result.outcome is Outcome.COMPLETED:  # a result that says how the tool was stopped is not replaced
            self.result = self._host.fit_result(self.tool, replacement)

    async def _run_once(self, call: ToolCall) -> ToolResult:
        """Run the tool, for middleware. Raises `ToolError` the second time."""
        if self.stage is not CallStage.PREPARING:
            raise ToolError("Middleware called next() twice for one tool call.")
        self.questions.call = call
        await self._run_tool()
        if self.result is None:  # a stop came before the tool began
            raise asyncio.CancelledError
        return self.result

    async def _run_tool(self) -> None:
        try:
            tool, arguments = self._validated()
        except ToolError as error:
            self._finish(failed_result(self.call, str(error)))
            return
        if self.questions.approved or tool.requires_approval:
            arguments = await self.questions.check_approval(tool, arguments, self._host)
        await self._host.before_start(self.call)
        # The last check before anything happens.
        if self._work_token.stop_asked and self._work_token.wants(Mode.AFTER_TOOLS):
            return
        self.stage = CallStage.RUNNING
        self.questions.started = True
        self.times.started = self._host.loop.time()
        if tool.compensation is not None:
            self.invocation.keep_arguments(arguments)  # before the tool can change them
        if tool.policy.timeout is not None or self.stop.timer is not None:
            self.stop.set_timer(tool.policy.timeout, self._on_timeout)
        self._host.emit(ToolStarted(self.questions.call))
        try:
            value = await self.invocation.run(tool, arguments, self._on_thread_end)
        except asyncio.CancelledError as error:
            if self._settle_cancelled(error):
                return
            raise
        except InterruptSignal:
            raise
        except BaseException as error:  # a tool's SystemExit is the tool's failure, not the program's end
            if isinstance(error, GeneratorExit) or self._host.loop.is_closed():
                raise
            if isinstance(error, KeyboardInterrupt) and not self.invocation.raised_elsewhere(error):
                raise
            self._finish(self.invocation.failed_result(error, tool))
        else:
            self._finish(self._completed(value))

    def _validated(self) -> tuple[Tool, dict[str, Any]]:
        """The tool and its arguments. Raises `ToolError`, in words for the model, when the call cannot be made."""
        if self.tool is None:
            raise ToolError(f"There is no tool named {self.call.name!r}.")
        call = self.questions.approved_call(self.tool) if self.questions.approved else self.questions.call
        if call.unparsed is not None:
            raise ToolError(f"The arguments were not a JSON object: {call.unparsed[:200]!r}.")
        return self.tool, self.tool.validate(call.arguments)

    # --- Ending -------------------------------------------------------------------------------------------------

    def _completed(self, value: Any) -> ToolResult:
        """The result of a tool that returned. From now on its effect can be undone, if the tool has a compensation."""
        if self.tool is not None and self.tool.compensation is not None:
            self._add_effect(self.tool.compensation, value.data if isinstance(value, ToolReturn) else value)
        return completed_result(self.call, value)

    def _add_effect(self, compensation: Compensation, data: Any) -> None:
        if self.stage is not CallStage.DONE:
            arguments = self.invocation.kept_arguments
            self._host.undo_log.add(completed_effect(self._host, self.questions.call, compensation, arguments, data))

    def _settle_cancelled(self, error: asyncio.CancelledError) -> bool:
        """Write the result of a cancelled tool. Whether the task goes on: not the run, but this call was stopped."""
        task = self.task
        assert task is not None
        if not task.cancelling():
            self._finish(failed_result(self.call, describe_error(error)))
            return True
        if not self.invocation.outlives_task:
            if self.tool is not None and self.tool.compensation is not None:
                for data in self.invocation.kept:
                    self._add_effect(self.tool.compensation, data)
            self._finish(self.invocation.stopped_result())
        elif self.times.abandoned is None:
            self.abandon()
        if self.stop.reason and not self._work_token.stop_now and task.cancelling() == 1:
            task.uncancel()
            return True
        return False

    def _finish(self, result: ToolResult) -> None:
        if self.stage is CallStage.DONE:
            return
        self.times.ended = self._host.loop.time()
        if self.stop.timer is not None:
            self.stop.clear_timer()
        if self.times.abandoned is None:
            if self.questions.changed_arguments is not None:
                result = with_changed_arguments(result, self.questions.changed_arguments)
            self.result = self._host.fit_result(self.tool, result)
            self.stage = CallStage.DONE
            return
        self.stage = CallStage.DONE
        result = self._host.fit_result(self.tool, result, late=True)
        late = LateOutcome(self.call.id, self.call.name, succeeded(result), result.text, self.times.lateness)
        self._host.record_late(late)

    def _suspend(self, signal: InterruptSignal) -> None:
        """The call waits for a person: it has ended for now, and has no result."""
        if self.times.abandoned is not None:
            self._finish(failed_result(self.call, f"It {signal} after it had been given up."))
            return
        if self.stop.reason:  # the call was cancelled: its question needs no answer
            self._finish(self.invocation.stopped_result(Outcome.CANCELLED))
            return
        self.stage = CallStage.DONE
        self.times.ended = self._host.loop.time()
        self.questions.interrupts = signal.interrupts
        self.questions.kept = well_formed_value(signal.kept)
        for interrupt in signal.interrupts:
            self._host.emit(InterruptRaised(interrupt))

    def _on_thread_end(self, outcome: ThreadOutcome) -> None:
        """The thread of an abandoned call has ended."""
        failure = None if outcome.error is None else self.invocation.failed_result(outcome.error, self.tool)
        self._finish(failure or self._completed(outcome.value))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        try:
            self._settle_task(task)
        except ENDS_PROGRAM as error:  # the batch may not know of the end: the stop does not need that
            self._stop_run(error)
            raise

    def _settle_task(self, task: asyncio.Task[None]) -> None:
        is_stopped = task.cancelled() and (task.cancelling() > 0 or self.stop.cancelled)
        error = None if is_stopped else asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, ENDS_PROGRAM):
            self._stop_run(error)
        elif error is not None:  # only the code around a hook can fail here; the call needs a result all the same
            self._finish(failed_result(self.call, describe_error(error)))
        self._notify_done()

    def _stop_run(self, error: BaseException) -> None:
        """What ends the program was raised in the call's task, such as Ctrl-C: the run stops, and so did the call."""
        if self.stage is CallStage.RUNNING:
            self._end_interrupted()
        self._host.stop_because(error)

    def _end_interrupted(self) -> None:
        """Write down what is known of a tool whose task can wait for it no more."""
        thread = self.invocation.thread
        if self.invocation.returned:
            self._finish(self._completed(*self.invocation.returned))
        elif thread is not None and not thread.withdraw():
            self.abandon()
        else:
            self.invocation.end_with_loop()
            self._finish(self.invocation.stopped_result())

    def _notify_done(self) -> None:
        if self.stop.timer is not None:
            self.stop.clear_timer()
        if self.stop.reason and self.result is None:
            self._finish(self.invocation.stopped_result(Outcome.NEVER_STARTED))
        if self.stop.reason and not self._work_token.stop_now:
            self.announce()
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()

    # --- Stopping with the run ----------------------------------------------------------------------------------

    def request_stop(self, mode: Mode) -> float:
        """Ask the call to stop, by its policy. Returns the seconds to wait until it is abandoned.

        A call whose tool has not begun, or has ended, is cancelled at once.
        """
        if self.tool is not None and self.stage is CallStage.RUNNING:
            return self.stop.request(self.tool, self.invocation, mode)
        assert self.task is not None
        self.stop.requested = True
        self.task.cancel()
        return FINAL_GRACE

    def cancel_after_grace(self) -> bool:
        """Cancel the call's task if it was allowed to finish and its grace is over. Returns whether that was so."""
        return self.stop.cancel_after_grace(self.tool if self.stage is CallStage.RUNNING else None, self.invocation)

    def abandon(self) -> None:
        """Wait no longer for a call that did not stop. What it does from now on is a late outcome."""
        assert self.task is not None
        if self.times.abandoned is not None:
            return
        thread = self.invocation.thread
        if thread is not None and thread.outcome is not None:  # it has ended in this very instant
            self._on_thread_end(thread.outcome)
            return
        if self.stage is CallStage.RUNNING:
            self.result = self.invocation.stopped_result(Outcome.ABANDONED)
        self.invocation.muted = True
        self.times.abandoned = self._host.loop.time()
        self.invocation.programs.kill()
        if thread is not None:
            self.task.cancel()  # the task only waited; the thread goes on
        self._notify_done()

    def end_with_loop(self) -> None:
        """Called when the loop was closed during the call: end what the call has started, and record its outcome."""
        if self.task is None or not self.running:
            return
        ended = self.invocation.end_with_loop()
        worker = self.invocation.worker
        if self.stage is CallStage.RUNNING and worker is not None and worker.settled:
            try:
                self._finish(self._completed(worker.outcome()))
            except BaseException as error:
                self._finish(self.invocation.failed_result(error, self.tool))
        elif self.stage is CallStage.RUNNING and (not ended or self.invocation.outlives_task):
            with suppress(RuntimeError):  # a thread goes on, and its loop is gone
                self.abandon()
        closed = close_coroutine(self.task)
        if self.stage is CallStage.RUNNING and self.times.abandoned is None:
            self._finish(self.invocation.stopped_result(None if closed else Outcome.UNKNOWN))

    def let_go(self) -> None:
        """Drop the references to its tasks, once the call is over."""
        self.task = self.stop.task = None
        self.invocation.thread = self.invocation.worker = None

    # --- Stopping this call alone -------------------------------------------------------------------------------

    def cancel(self, reason: str, *, source: Source = "user") -> bool:
        """Stop this call by its policy; the turn goes on. `reason` opens its result. Whether it was not over yet."""
        if self.suspended:
            self._cancel_questions(reason)
            return True
        if self.stage is CallStage.DONE or self.times.abandoned is not None or self.stop.reason:
            return False
        self.stop.reason = reason
        self.stop.token.cancel(reason, source=source)
        if self.task is None:
            self._notify_done()
        else:
            self.stop.set_timer(self.request_stop(Mode.NOW), self._on_grace_over)
        return True

    def _cancel_questions(self, reason: str) -> None:
        """End a call that waits for a person: its questions need no answer."""
        self.stop.reason = reason
        self.stop.token.cancel(reason)
        self.questions.interrupts = ()
        self.result = self.invocation.stopped_result(
            Outcome.CANCELLED if self.questions.started else Outcome.NEVER_STARTED
        )
        self.announce()

    def _on_timeout(self) -> None:
        assert self.tool is not None
        if not self.stop.requested:
            self.cancel(f"It took longer than its timeout of {self.tool.policy.timeout:g} s.", source="deadline")

    def _on_grace_over(self) -> None:
        if not self.running:
            return
        if self.cancel_after_grace():
            self.stop.set_timer(self.stop.final_grace(self.invocation), self.abandon)
        else:
            self.abandon()
