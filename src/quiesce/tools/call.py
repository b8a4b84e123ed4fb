"""One tool call: from the model's request to its result and its line on the receipt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from .._threads.tasks import start_task
from ..cancellation import Mode, Source
from ..cancellation.raised import ENDS_PROGRAM
from ..conversation.sealing import unfinished
from ..errors import ToolError
from ..events import InterruptRaised, ToolEnded, ToolStarted
from ..interrupts import InterruptSignal, PendingCall
from ..messages import Outcome, ToolCall, ToolResult
from ..receipt import CallReceipt, LateOutcome
from .call_stop import CallStop
from .call_times import CallTimes
from .closed_loop import close_coroutine
from .host import ToolHost
from .invocation import Invocation
from .output import as_result_of, completed_result, describe_error, failed_result, with_changed_arguments
from .questions import CallQuestions
from .result_text import process_ended_result, raised_result, receipt_detail, stopped_result, succeeded
from .thread import ThreadOutcome
from .tool import Tool
from .tool_return import ToolReturn
from .undo.effect import completed_effect

_log: Final = logging.getLogger("quiesce")


class CallStage(Enum):
    """How far a call has come."""

    WAITING = "waiting"
    PREPARING = "preparing"
    RUNNING = "running"
    DONE = "done"


class CallInProgress:
    """One call while it is made. Its result is written in one step, as soon as it is known, and is never lost later.

    `earlier` is how far an earlier run has come with the same call, before it waited for a person.
    """

    def __init__(self, call: ToolCall, tool: Tool | None, host: ToolHost, earlier: PendingCall | None = None) -> None:
        self.call: Final = call
        self.tool: Final = tool
        self.questions: Final = CallQuestions(call, earlier)
        self._host: Final = host
        self._work_token: Final = host.work_token
        self._token: Final = host.work_token.child()
        self.result: ToolResult | None = self.questions.result
        self.stage = CallStage.WAITING if self.result is None and not self.questions.interrupts else CallStage.DONE
        self.task: asyncio.Task[None] | None = None
        self._invocation: Final = Invocation(
            self.questions,
            host,
            self._token,
            grace_left=lambda: self._stop.grace_left(),  # noqa: PLW0108  (it is made below)
            on_orphan=self._on_thread_end,
            on_unshield=lambda: self._stop.on_unshield(self.task),
        )
        self._stop: Final = CallStop(tool, self._invocation, host)
        self._times: Final = CallTimes(host.loop)
        self._on_done: Callable[[], None] = lambda: None
        self._announced = False

    # --- Running ------------------------------------------------------------------------------------------------

    def start(self, on_done: Callable[[], None]) -> None:
        """Begin, in a task of its own. `on_done` is called, once, when the call needs no more waiting for."""
        self._on_done = on_done
        self.stage = CallStage.PREPARING
        self.task = start_task(self._run(), name=f"quiesce tool {self.call.name} {self.call.id}")
        self.task.add_done_callback(self._on_task_end)

    async def _run(self) -> None:
        try:
            replacement = await self._host.before_tool(self.questions.call, self.questions)
            if replacement is not None:
                self._finish(replacement)
            elif self._host.has_middleware:
                await self._run_through_middleware()
            else:
                await self._run_tool()
        except InterruptSignal as signal:
            self._suspend(signal)
        except ENDS_PROGRAM as error:  # at once: the other calls of the turn must not begin
            self._stop_run(error)
            raise
        if self.result is not None and not self.abandoned:
            self.result = self._host.fit_result(self.tool, await self._host.after_tool(self.call, self.result))
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
        arguments = await self.questions.check_approval(tool, arguments, self._host)
        await self._host.before_start(self.call)
        if self._work_token.wants(Mode.AFTER_TOOLS):  # the last check before anything happens
            return
        self.stage = CallStage.RUNNING
        self.questions.started = True
        self._times.mark_started()
        self._invocation.keep_for_undo(tool, arguments)  # before the tool can change them
        self._stop.set_timer(tool.policy.timeout, self._on_timeout)
        self._host.emit(ToolStarted(self.questions.call))
        try:
            value = await self._invocation.run(tool, arguments)
        except asyncio.CancelledError as error:
            if self._settle_cancelled(error):
                return
            raise
        except InterruptSignal:
            raise
        except BaseException as error:  # a tool's SystemExit is the tool's failure, not the program's end
            if isinstance(error, GeneratorExit) or self._loop_is_closed:
                raise
            if isinstance(error, KeyboardInterrupt) and not self._invocation.raised_elsewhere(error):
                raise
            self._finish(self._failure(error))
        else:
            self._finish(self._completed(value))

    def _validated(self) -> tuple[Tool, dict[str, Any]]:
        """The tool and its arguments. Raises `ToolError`, in words for the model, when the call cannot be made."""
        if self.tool is None:
            raise ToolError(f"There is no tool named {self.call.name!r}.")
        call = self.questions.approved_call(self.tool)
        if call.unparsed is not None:
            raise ToolError(f"The arguments were not a JSON object: {call.unparsed[:200]!r}.")
        return self.tool, self.tool.validate(call.arguments)

    # --- Ending -------------------------------------------------------------------------------------------------

    def _completed(self, value: Any) -> ToolResult:
        """The result of a tool that returned. From now on its effect can be undone, if the tool has a compensation."""
        self._add_effect(value.data if isinstance(value, ToolReturn) else value)
        return completed_result(self.call, value)

    def _add_effect(self, data: Any) -> None:
        compensation = None if self.tool is None else self.tool.compensation
        if compensation is not None and self.stage is not CallStage.DONE:
            arguments = self._invocation.kept.arguments
            self._host.undo_log.add(completed_effect(self._host, self.questions.call, compensation, arguments, data))

    def _settle_cancelled(self, error: asyncio.CancelledError) -> bool:
        """Write the result of a cancelled tool. Whether the task goes on: not the run, but this call was stopped."""
        task = self.task
        assert task is not None
        if not task.cancelling():
            self._finish(failed_result(self.call, describe_error(error)))
            return True
        if not self._invocation.outlives_task:
            for data in self._invocation.kept.data:
                self._add_effect(data)
            self._finish(self._stopped(self._invocation.stopped_outcome))
        elif not self.abandoned:
            self.abandon()
        if self._stop.reason and not self._work_token.stop_now and task.cancelling() == 1:
            task.uncancel()
            return True
        return False

    def _failure(self, error: BaseException) -> ToolResult:
        from ..processes.exit_status import ProcessEnded

        policy = None if self.tool is None else self.tool.policy
        if isinstance(error, ProcessEnded) and policy is not None:
            if self._invocation.stopping:
                return self._stopped(self._invocation.stopped_outcome)
            return process_ended_result(self.call, error, policy, self._invocation.captured_output())
        _log.debug("Tool %s (%s) raised.", self.call.name, self.call.id, exc_info=error)
        return raised_result(self.call, error, policy, stopping=self._token.cancelled)

    def _stopped(self, outcome: Outcome) -> ToolResult:
        return stopped_result(self.call, outcome, self._stop.reason, self._invocation.captured_output())

    def _finish(self, result: ToolResult) -> None:
        if self.stage is CallStage.DONE:
            return
        self._times.mark_ended()
        self._stop.clear_timer()
        if not self.abandoned:
            changed = with_changed_arguments(result, self.questions.changed_arguments)
            self.result = self._host.fit_result(self.tool, changed)
            self.stage = CallStage.DONE
            return
        self.stage = CallStage.DONE
        result = self._host.fit_result(self.tool, result, late=True)
        late = LateOutcome(self.call.id, self.call.name, succeeded(result), result.text, self._times.lateness)
        self._host.record_late(late)

    def _suspend(self, signal: InterruptSignal) -> None:
        """The call waits for a person: it has ended for now, and has no result."""
        if self.abandoned:
            self._finish(failed_result(self.call, f"It {signal} after it had been given up."))
            return
        if self._stop.reason:  # the call was cancelled: its question needs no answer
            self._finish(self._stopped(Outcome.CANCELLED))
            return
        self.stage = CallStage.DONE
        self._times.mark_ended()
        self.questions.interrupts = signal.interrupts
        self.questions.kept = signal.kept
        for interrupt in signal.interrupts:
            self._host.emit(InterruptRaised(interrupt))

    def _on_thread_end(self, outcome: ThreadOutcome) -> None:
        """The thread of an abandoned call has ended."""
        failure = None if outcome.error is None else self._failure(outcome.error)
        self._finish(failure or self._completed(outcome.value))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        try:
            self._settle_task(task)
        except ENDS_PROGRAM as error:  # the batch may not know of the end: the stop does not need that
            self._stop_run(error)
            raise

    def _settle_task(self, task: asyncio.Task[None]) -> None:
        is_stopped = task.cancelled() and (task.cancelling() > 0 or self._token.cancelled)
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
        thread = self._invocation.thread
        if self._invocation.returned:
            self._finish(self._completed(*self._invocation.returned))
        elif thread is not None and not thread.withdraw():
            self.abandon()
        else:
            self._invocation.end_with_loop()
            self._finish(self._stopped(self._invocation.stopped_outcome))

    def _notify_done(self) -> None:
        self._stop.clear_timer()
        if self._stop.reason and self.result is None:
            self._finish(self._stopped(Outcome.NEVER_STARTED))
        if self._stop.reason and not self._work_token.stop_now:
            self.announce()
        on_done, self._on_done = self._on_done, lambda: None
        on_done()

    # --- Stopping with the run ----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the call has a task that is still under way and can be waited for."""
        return self.task is not None and not self.task.done() and not self.abandoned

    @property
    def abandoned(self) -> bool:
        """Whether the call did not stop in time, so that the run no longer waits for it."""
        return self._times.abandoned

    @property
    def _running_tool(self) -> Tool | None:
        return self.tool if self.stage is CallStage.RUNNING else None

    @property
    def label(self) -> str:
        """The name under which a stop waits for this call."""
        return self._invocation.label

    def stop_timeout(self, mode: Mode) -> float:
        """How long a stop in this mode waits for the call before it abandons it."""
        return self._stop.timeout(self._running_tool, mode)

    @property
    def final_grace(self) -> float:
        """How long the call may take to end once it was cancelled after its grace."""
        return self._stop.final_grace

    def request_stop(self, mode: Mode) -> None:
        """Ask the call to stop, by its policy. A call whose tool has not begun, or has ended, is cancelled at once."""
        assert self.task is not None
        self._stop.request(self.task, self._running_tool, mode)

    def cancel_after_grace(self) -> bool:
        """Cancel a task that was allowed to finish and has not. Whether there was one."""
        return self._stop.cancel_after_grace(self.task, self._running_tool)

    def abandon(self) -> None:
        """Wait no longer for a call that did not stop. What it does from now on is a late outcome."""
        assert self.task is not None
        if self.abandoned:
            return
        thread = self._invocation.thread
        if thread is not None and thread.outcome is not None:  # it has ended in this very instant
            self._on_thread_end(thread.outcome)
            return
        if self.stage is CallStage.RUNNING:
            self.result = self._stopped(Outcome.ABANDONED)
        self._invocation.muted = True
        self._times.mark_abandoned()
        self._invocation.give_up_programs()
        if thread is not None:
            self.task.cancel()  # the task only waited; the thread goes on
        self._notify_done()

    @property
    def _loop_is_closed(self) -> bool:
        return self._host.loop.is_closed()

    def end_with_loop(self) -> None:
        """The loop was closed around the call: end what it has started, and write down what is known of it."""
        if self.task is None or not self.running:
            return
        ended = self._invocation.end_with_loop()
        worker = self._invocation.worker
        if self.stage is CallStage.RUNNING and worker is not None and worker.settled:
            try:
                self._finish(self._completed(worker.outcome()))
            except BaseException as error:
                self._finish(self._failure(error))
        elif self.stage is CallStage.RUNNING and (not ended or self._invocation.outlives_task):
            with suppress(RuntimeError):  # a thread goes on, and its loop is gone
                self.abandon()
        closed = close_coroutine(self.task)
        if self.stage is CallStage.RUNNING and not self.abandoned:
            self._finish(self._stopped(self._invocation.stopped_outcome if closed else Outcome.UNKNOWN))

    def let_go(self) -> None:
        """The call is over for good: forget what refers to it."""
        self.task = None
        self._invocation.let_go()

    # --- Stopping this call alone -------------------------------------------------------------------------------

    def cancel(self, reason: str, *, source: Source = "user") -> bool:
        """Stop this call by its policy; the turn goes on. `reason` opens its result. Whether it was not over yet."""
        if self.suspended:
            self._cancel_questions(reason)
            return True
        if self.stage is CallStage.DONE or self.abandoned or self._stop.reason:
            return False
        self._stop.reason = reason
        self._token.cancel(reason, source=source)
        if self.task is None:
            self._notify_done()
        else:
            self.request_stop(Mode.NOW)
            self._stop.set_timer(self.stop_timeout(Mode.NOW), self._on_grace_over)
        return True

    def _cancel_questions(self, reason: str) -> None:
        """End a call that waits for a person: its questions need no answer."""
        self._stop.reason = reason
        self._token.cancel(reason)
        self.questions.interrupts = ()
        self.result = self._stopped(Outcome.CANCELLED if self.questions.started else Outcome.NEVER_STARTED)
        self.announce()

    def _on_timeout(self) -> None:
        assert self.tool is not None
        if not self._invocation.stopping:
            self.cancel(f"It took longer than its timeout of {self.tool.policy.timeout:g} s.", source="deadline")

    def _on_grace_over(self) -> None:
        if not self.running:
            return
        if self.cancel_after_grace():
            self._stop.set_timer(self.final_grace, self.abandon)
        else:
            self.abandon()

    # --- State and result ---------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether the tool's function has begun in this run."""
        return self._times.started

    @property
    def suspended(self) -> bool:
        """Whether the call waits for a person."""
        return self.result is None and bool(self.questions.interrupts)

    @property
    def still_running(self) -> bool:
        """Whether the call was abandoned and has not ended since."""
        return self.abandoned and self.stage is not CallStage.DONE

    def still_running_names(self) -> tuple[str, ...]:
        """The receipt's names for a call that is still running, with its processes, or for those that it has left."""
        name = f"tool {self.call.name} ({self.call.id})"
        if self.still_running:
            return (" ".join((name, *self._invocation.process_labels())),)
        return tuple(f"{each} of {name}" for each in self._invocation.left_labels())

    @property
    def was_cut(self) -> bool:
        """Whether the tool began and did not come to its own end."""
        return self.result is not None and self.result.outcome not in (Outcome.COMPLETED, Outcome.NEVER_STARTED)

    @property
    def completed(self) -> bool:
        """Whether the tool came to its own end, without an error."""
        return self.result is not None and succeeded(self.result)

    @property
    def can_be_undone(self) -> bool:
        """Whether the tool has a compensation."""
        return self.tool is not None and self.tool.compensation is not None

    def settled_result(self) -> ToolResult:
        """The result in any case: a call that has none by now did not start."""
        return self.result_or(Outcome.NEVER_STARTED)

    def result_or(self, unsettled: Outcome) -> ToolResult:
        """The result, or one that says what is known of the call; `unsettled` if that is nothing."""
        if self.result is not None:
            return self.result
        if unsettled is not Outcome.NEVER_STARTED:
            return unfinished(self.call, unsettled)
        # A call that asked a person from inside its tool has begun, and has no result since.
        return self._stopped(Outcome.CANCELLED if self.questions.started else unsettled)

    def announce(self) -> None:
        """Emit the result to the run's readers, once."""
        if not self._announced:
            self._announced = True
            self._host.emit(ToolEnded(self.settled_result()))

    def receipt(self) -> CallReceipt:
        """This call's line on the receipt."""
        result = self.settled_result()
        what = "It waits for the answer of a person." if self.suspended else receipt_detail(result)
        detail = "\n".join(filter(None, (what, self._stop.shield_note)))
        ok = succeeded(result)
        return CallReceipt(
            self.call.id,
            self.call.name,
            result.outcome,
            ok,
            detail,
            self._times.duration,
            self.suspended,
            result.full_length,
        )
