"""What is known of one tool call: its result, its times, and its line on the receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from ..cancellation import CancellationToken
from ..conversation.sealing import unfinished
from ..events import ToolEnded
from ..interrupts import PendingCall
from ..messages import Outcome, ToolCall, ToolResult
from ..receipt import CallReceipt
from .call_stop import CallStop
from .call_times import CallTimes
from .host import ToolHost
from .invocation import Invocation
from .questions import CallQuestions
from .result_text import succeeded
from .tool import Tool


class CallStage(Enum):
    """How far a call has come."""

    WAITING = "waiting"
    PREPARING = "preparing"
    RUNNING = "running"
    DONE = "done"


class CallRecord:
    """One call of a turn, as its batch and the receipt see it.

    `earlier` is how far an earlier run has come with the same call, before it waited for a person.
    """

    __slots__ = (
        "_host",
        "_on_done",
        "_work_token",
        "announced",
        "call",
        "invocation",
        "questions",
        "result",
        "stage",
        "stop",
        "task",
        "times",
        "tool",
    )

    def __init__(
        self,
        call: ToolCall,
        tool: Tool | None,
        host: ToolHost,
        work_token: CancellationToken,
        earlier: PendingCall | None = None,
    ) -> None:
        self.call: Final = call
        self.tool: Final = tool
        self.questions: Final = CallQuestions(call, earlier)
        self._host: Final = host
        self._work_token: Final = work_token
        self.result: ToolResult | None = self.questions.result
        self.stage = CallStage.WAITING if self.result is None and not self.questions.interrupts else CallStage.DONE
        self.task: asyncio.Task[None] | None = None
        self.stop: Final = CallStop(tool, host.loop, host.stop_because, work_token)
        self.invocation: Final = Invocation(self.questions, host, self.stop)
        self.times: Final = CallTimes()
        self._on_done: Callable[[], None] | None = None
        self.announced = False

    @property
    def running(self) -> bool:
        """Whether the call has a task that is still under way and can be waited for."""
        return self.task is not None and not self.task.done() and self.times.abandoned is None

    @property
    def suspended(self) -> bool:
        """Whether the call waits for a person."""
        return self.result is None and bool(self.questions.interrupts)

    @property
    def still_running(self) -> bool:
        """Whether the call was abandoned and has not ended since."""
        return self.times.abandoned is not None and self.stage is not CallStage.DONE

    def still_running_names(self) -> tuple[str, ...]:
        """The receipt's names for a call that is still running, with its processes, or for those that it has left."""
        invocation = self.invocation
        if self.still_running:
            return (" ".join((f"tool {self.call.name} ({self.call.id})", *invocation.process_labels())),)
        if invocation.worker is not None or not (invocation.programs.supervised or invocation.programs.started):
            return ()
        return tuple(f"{each} of tool {self.call.name} ({self.call.id})" for each in invocation.programs.labels())

    @property
    def completed(self) -> bool:
        """Whether the tool came to its own end, without an error."""
        return self.result is not None and succeeded(self.result)

    @property
    def can_be_undone(self) -> bool:
        """Whether the tool has a compensation."""
        return self.tool is not None and self.tool.compensation is not None

    def result_or(self, unsettled: Outcome) -> ToolResult:
        """The result, or one that says what is known of the call; `unsettled` if that is nothing.

        A call that has no result when its run has settled did not start.
        """
        if self.result is not None:
            return self.result
        if unsettled is not Outcome.NEVER_STARTED:
            return unfinished(self.call, unsettled)
        # A call that asked a person from inside its tool has begun, and has no result since.
        return self.invocation.stopped_result(Outcome.CANCELLED if self.questions.started else unsettled)

    def announce(self) -> None:
        """Emit the result to the run's readers, once."""
        if not self.announced:
            self.announced = True
            result = self.result
            self._host.emit(ToolEnded(self.result_or(Outcome.NEVER_STARTED) if result is None else result))

    def receipt(self) -> CallReceipt:
        """This call's line on the receipt."""
        result, times = self.result, self.times
        suspended = result is None and bool(self.questions.interrupts)
        if result is None:
            result = self.result_or(Outcome.NEVER_STARTED)
        ok = result.outcome is Outcome.COMPLETED and not result.is_error
        what = "It waits for the answer of a person." if suspended else "" if ok else result.text
        end = times.abandoned if times.ended is None else times.ended
        return CallReceipt(
            self.call.id,
            self.call.name,
            result.outcome,
            ok,
            "\n".join(filter(None, (what, self.stop.shield_note))),
            None if times.started is None or end is None else end - times.started,
            suspended,
            result.full_length,
        )
