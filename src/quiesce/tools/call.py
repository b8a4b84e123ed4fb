"""One tool call, from asked-for to accounted-for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from copy import deepcopy
from enum import Enum
from typing import Any, Final

from ..cancellation import Mode, Source
from ..conversation.sealing import unfinished
from ..errors import ToolError
from ..events import InterruptRaised, ToolEnded, ToolStarted
from ..interrupts import InterruptSignal, PendingCall
from ..messages import Outcome, ToolCall, ToolResult
from ..receipt import CallReceipt, LateOutcome
from .host import ToolHost
from .invocation import Invocation
from .output import completed, describe, failed, with_note
from .policy import LAST_BREATH, REAPING
from .questions import CallQuestions
from .result_text import died, note, raised, stopped
from .stop_rules import grace_of, is_cancelled_at_last, is_spared, patience_with
from .thread import ThreadOutcome
from .tool import Tool
from .undo.log import Effect

_log: Final = logging.getLogger("quiesce")


class Stage(Enum):
    """How far a call has come."""

    WAITING = "waiting"
    PREPARING = "preparing"
    RUNNING = "running"
    DONE = "done"


class CallInProgress:
    """The life of one call. Its result is written in one step, the moment that it is known, and never lost after."""

    def __init__(self, call: ToolCall, tool: Tool | None, host: ToolHost, before: PendingCall | None = None) -> None:
        self.call: Final = call
        self.tool: Final = tool
        self.asking: Final = CallQuestions(call, before)
        self._host: Final = host
        self._work_token: Final = host.work_token
        self._loop: Final = asyncio.get_running_loop()
        self._clock: Final = self._loop.time
        self._token: Final = host.work_token.child()
        self.result: ToolResult | None = self.asking.result
        self.stage = Stage.WAITING if self.result is None and not self.asking.open else Stage.DONE
        self.task: asyncio.Task[None] | None = None
        self._invocation: Final = Invocation(
            self.asking,
            host,
            self._token,
            grace_left=self._grace_left,
            on_orphan=self._on_thread_end,
            on_unshield=self._on_unshield,
        )
        self._shield_note = ""
        self._timer: asyncio.TimerHandle | None = None
        self._on_rest: Callable[[], None] = lambda: None
        self.left_behind = False
        self._stop_deadline: float | None = None
        self._held_back = False
        self._why_alone = ""
        self._given: dict[str, Any] = {}
        self._announced = False
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self._stopped_waiting_at: float | None = None

    # --- Running ------------------------------------------------------------------------------------------------

    def start(self, on_rest: Callable[[], None]) -> None:
        """Begin, in a task of its own. `on_rest` is called, once, when nobody needs to wait for the call any more."""
        self._on_rest = on_rest
        self.stage = Stage.PREPARING
        self.task = self._loop.create_task(self._perform(), name=f"quiesce tool {self.call.name} {self.call.id}")
        self.task.add_done_callback(self._on_task_end)

    async def _perform(self) -> None:
        try:
            replacement = await self._host.before_tool(self.asking.call, self.asking)
            if replacement is not None:
                self._finish(replacement)
            else:
                await self._run_tool()
        except InterruptSignal as signal:
            self._suspend(signal)
        if self.result is not None and not self.left_behind:
            self.result = await self._host.after_tool(self.call, self.result)
            self.announce()

    async def _run_tool(self) -> None:
        try:
            tool, arguments = self._checked()
        except ToolError as error:
            self._finish(failed(self.call, str(error)))
            return
        await self.asking.check_approval(tool, arguments)
        await self._host.before_start(self.call)
        if self._work_token.wants(Mode.AFTER_TOOLS):  # the last look before anything happens
            return
        self.stage = Stage.RUNNING
        self.asking.started = True
        self._started_at = self._clock()
        if tool.compensation is not None:  # before the tool can change them
            self._given = {name: _copied(value) for name, value in arguments.items()}
        self._set_timer(tool.policy.timeout, self._on_timeout)
        self._host.emit(ToolStarted(self.asking.call))
        try:
            value = await self._invocation.run(tool, arguments)
        except asyncio.CancelledError as error:
            if self._settle_cancelled(error):
                return
            raise
        except InterruptSignal:
            raise
        except GeneratorExit:  # the loop was closed around a run that was still going on
            raise
        except BaseException as error:  # a tool's SystemExit is the tool's failure, not the program's end
            self._finish(self._failure(error))
        else:
            self._finish(self._completed(value))

    def _completed(self, value: Any) -> ToolResult:
        """The result of a tool that returned; what it did can be undone from now on, where there is a way."""
        compensation = None if self.tool is None else self.tool.compensation
        if compensation is not None and self.stage is not Stage.DONE:
            log = self._host.undo_log
            log.add(Effect(self.call, compensation, self._given, value, log))
        return completed(self.call, value)

    def _settle_cancelled(self, error: asyncio.CancelledError) -> bool:
        """The tool was cancelled. Whether the task goes on: when only this call was stopped, or the tool did it."""
        task = self.task
        assert task is not None
        if not task.cancelling():
            self._finish(failed(self.call, describe(error)))
            return True
        if not self._invocation.outlives_its_task:
            self._finish(self._stopped(self._invocation.cut))
        elif not self.left_behind:
            self.leave_behind()
        if self._why_alone and not self._work_token.stop_now and task.cancelling() == 1:
            task.uncancel()
            return True
        return False

    def _failure(self, error: BaseException) -> ToolResult:
        from ..processes.exit_status import ProcessEnded

        policy = None if self.tool is None else self.tool.policy
        if isinstance(error, ProcessEnded) and policy is not None:
            if self._invocation.stopping:
                return self._stopped(self._invocation.cut)
            return died(self.call, error, policy, self._invocation.printed())
        _log.debug("Tool %s (%s) raised.", self.call.name, self.call.id, exc_info=error)
        return raised(self.call, error, policy, stopping=self._token.cancelled)

    def _stopped(self, outcome: Outcome) -> ToolResult:
        return stopped(self.call, outcome, self._why_alone, self._invocation.printed())

    def _checked(self) -> tuple[Tool, dict[str, Any]]:
        """The tool and its arguments. Raises `ToolError`, in words for the model, when the call cannot be made."""
        if self.tool is None:
            raise ToolError(f"There is no tool named {self.call.name!r}.")
        call = self.asking.call
        if call.unparsed is not None:
            raise ToolError(f"The arguments were not a JSON object: {call.unparsed[:200]!r}.")
        return self.tool, self.tool.validate(call.arguments)

    def _finish(self, result: ToolResult) -> None:
        if self.stage is Stage.DONE:
            return
        self.stage = Stage.DONE
        self._ended_at = self._clock()
        self._set_timer(None)
        if not self.left_behind:
            self.result = with_note(result, self.asking.changed_arguments)
            return
        after = 0.0 if self._stopped_waiting_at is None else self._ended_at - self._stopped_waiting_at
        self._host.record_late(LateOutcome(self.call.id, self.call.name, not result.is_error, result.text, after))

    def _suspend(self, signal: InterruptSignal) -> None:
        """The call waits for a person: it has ended for now, and has no result."""
        if self.left_behind:
            self._finish(failed(self.call, f"It {signal} after it had been given up."))
            return
        if self._why_alone:  # nobody wants it any more
            self._finish(self._stopped(Outcome.CANCELLED))
            return
        self.stage = Stage.DONE
        self._ended_at = self._clock()
        self.asking.open = signal.interrupts
        self.asking.kept = signal.kept
        for interrupt in signal.interrupts:
            self._host.emit(InterruptRaised(interrupt))

    @property
    def suspended(self) -> bool:
        """Whether the call waits for a person."""
        return self.result is None and bool(self.asking.open)

    def _on_thread_end(self, outcome: ThreadOutcome) -> None:
        """The thread of a call that was left behind has ended."""
        failure = None if outcome.error is None else self._failure(outcome.error)
        self._finish(failure or self._completed(outcome.value))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # only a hook's own machinery can fail here; the call must be answered all the same
            self._finish(failed(self.call, describe(error)))
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        self._set_timer(None)
        if self._why_alone and self.result is None:
            self._finish(self._stopped(Outcome.NEVER_STARTED))
        if self._why_alone and not self._work_token.stop_now:
            self.announce()
        on_rest, self._on_rest = self._on_rest, lambda: None
        on_rest()

    # --- Stopping -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether something of this call is still under way that could be waited for."""
        return self.task is not None and not self.task.done() and not self.left_behind

    @property
    def _running_tool(self) -> Tool | None:
        return self.tool if self.stage is Stage.RUNNING else None

    @property
    def label(self) -> str:
        """What a stop waits for, when it waits for this call."""
        return self._invocation.label

    def grace(self, mode: Mode) -> float:
        """How long a stop in this mode waits for the call before it gives it up."""
        tool = self._running_tool
        return LAST_BREATH if tool is None else patience_with(tool, self._invocation, mode)

    @property
    def last_breath(self) -> float:
        """How long the call may take to end once it is cancelled at last."""
        return REAPING if self._invocation.has_programs or self.tool is None else self.tool.last_breath

    def _grace_left(self) -> float:
        if self._stop_deadline is None:
            return 0.0 if self.tool is None else self.tool.policy.grace
        return max(0.0, self._stop_deadline - self._clock())

    def request_stop(self, mode: Mode) -> None:
        """Ask the call to stop, as its policy has it. A call whose tool has not begun, or has ended, just stops."""
        assert self.task is not None
        self._invocation.stopping = True
        tool = self._running_tool
        if tool is None:
            self.task.cancel()
            return
        deadline = self._clock() + grace_of(tool, mode)
        self._stop_deadline = deadline if self._stop_deadline is None else min(self._stop_deadline, deadline)
        shielded = self._invocation.shielded and mode is not Mode.KILL
        if shielded:
            self._shield_note = f"The stop waited for its protected part: {self.label}."
        if self._invocation.worker is not None:
            self._invocation.worker.stop(self._grace_left())
        elif is_spared(tool, mode):
            pass
        elif shielded:
            self._held_back = True
        else:
            self._invocation.stop_programs(self._grace_left())
            if self.task.cancelling() and mode is not Mode.KILL:
                return  # it was told before, when the run was steered, and is cleaning up
            self.task.cancel()

    def _on_unshield(self) -> None:
        """The tool has left its protected part: a stop that was held back takes effect."""
        if self._held_back and self.task is not None:
            self._held_back = False
            self.task.cancel()

    def cancel_at_last(self) -> bool:
        """Cancel a task that was allowed to finish and has not. Whether there was one."""
        tool = self._running_tool
        if self.task is None or tool is None or self._invocation.worker:
            return False
        if not (is_cancelled_at_last(tool) or self._held_back) or self.task.cancelling():
            return False
        return self.task.cancel()

    def leave_behind(self) -> None:
        """Give the call up: it did not stop. What it does from now on is a late outcome."""
        assert self.task is not None
        if self.left_behind:
            return
        thread = self._invocation.thread
        if thread is not None and thread.outcome is not None:  # it ended in this very instant
            self._on_thread_end(thread.outcome)
            return
        if self.stage is Stage.RUNNING:
            self.result = self._stopped(Outcome.ABANDONED)
        self.left_behind = self._invocation.muted = True
        self._stopped_waiting_at = self._clock()
        self._invocation.stop_programs(0.0)
        if thread is not None:
            self.task.cancel()  # the task only waited; the thread is what is left
        self._come_to_rest()

    # --- Stopping this call alone -------------------------------------------------------------------------------

    def stop_alone(self, why: str, *, source: Source = "user") -> bool:
        """Stop this call by its policy, and let the turn go on. `why` opens its result. Whether it was not over yet."""
        if self.suspended:
            self._stop_asking(why)
            return True
        if self.stage is Stage.DONE or self.left_behind or self._why_alone:
            return False
        self._why_alone = why
        self._token.cancel(why, source=source)
        if self.task is None:
            self._come_to_rest()
        else:
            self.request_stop(Mode.NOW)
            self._set_timer(self.grace(Mode.NOW), self._on_grace_over)
        return True

    def _stop_asking(self, why: str) -> None:
        """Nobody needs to answer any more what the call asked."""
        self._why_alone = why
        self._token.cancel(why)
        self.asking.open = ()
        self.result = self._stopped(Outcome.CANCELLED if self.asking.started else Outcome.NEVER_STARTED)
        self.announce()

    def _on_timeout(self) -> None:
        assert self.tool is not None
        if not self._invocation.stopping:
            self.stop_alone(f"It took longer than its timeout of {self.tool.policy.timeout:g} s.", source="deadline")

    def _on_grace_over(self) -> None:
        if not self.running:
            return
        if self.cancel_at_last():
            self._set_timer(self.last_breath, self.leave_behind)
        else:
            self.leave_behind()

    def _set_timer(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """One timer at a time: the tool's timeout, and then the end of its grace."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None or then is None else self._loop.call_later(seconds, then)

    @property
    def still_running(self) -> bool:
        """Whether the call was left behind and has not ended since."""
        return self.left_behind and self.stage is not Stage.DONE

    @property
    def was_cut(self) -> bool:
        """Whether the tool began and did not come to its own end."""
        return self.result is not None and self.result.outcome not in (Outcome.COMPLETED, Outcome.NEVER_STARTED)

    @property
    def completed(self) -> bool:
        """Whether the tool came to its own end, without an error."""
        return self.result is not None and self.result.outcome is Outcome.COMPLETED and not self.result.is_error

    @property
    def can_be_undone(self) -> bool:
        """Whether there is a way to take back what the tool does."""
        return self.tool is not None and self.tool.compensation is not None

    @property
    def remains(self) -> str:
        """What is left of a call that is still running, in words."""
        return " ".join((f"tool {self.call.name} ({self.call.id})", *self._invocation.places()))

    # --- Telling ------------------------------------------------------------------------------------------------

    def settled_result(self) -> ToolResult:
        """The result, whatever happened: a call that has none by now did not start."""
        return self.standing(Outcome.NEVER_STARTED)

    def standing(self, unsettled: Outcome) -> ToolResult:
        """The result, or what can be said in its place; `unsettled` of a call that nothing is known of."""
        if self.result is not None:
            return self.result
        if unsettled is not Outcome.NEVER_STARTED:
            return unfinished(self.call, unsettled)
        # One that asked a person from inside its tool has begun, and has not been heard of since.
        return self._stopped(Outcome.CANCELLED if self.asking.started else unsettled)

    def announce(self) -> None:
        """Tell the readers about the result, once."""
        if not self._announced:
            self._announced = True
            self._host.emit(ToolEnded(self.settled_result()))

    def receipt(self) -> CallReceipt:
        """This call's line on the receipt."""
        result = self.settled_result()
        ended = self._stopped_waiting_at if self._ended_at is None else self._ended_at
        seconds = None if self._started_at is None or ended is None else ended - self._started_at
        detail = "\n".join(filter(None, (note(result), self._shield_note)))
        ok = result.outcome is not Outcome.COMPLETED or not result.is_error
        return CallReceipt(self.call.id, self.call.name, result.outcome, ok, detail, seconds, self.suspended)


def _copied(value: Any) -> Any:
    """A copy that the tool cannot change; the thing itself, when there is no copying it."""
    try:
        return deepcopy(value)
    except Exception:  # a type of the user's own can raise anything here
        return value
