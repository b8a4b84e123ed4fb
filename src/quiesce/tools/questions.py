"""What one call asks a person, and what was answered."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import ToolError
from ..interrupts import APPROVAL, Interrupt, InterruptSignal, PendingCall
from ..messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from .tool import Tool


class CallQuestions:
    """Kept for each call: the answers that it was given, and what it waits for. `before` is from an earlier run."""

    def __init__(self, call: ToolCall, before: PendingCall | None = None) -> None:
        was = before or PendingCall(call)
        changed = was.arguments
        self._as_asked: Final = call
        self.call: Final = call if changed is None else ToolCall(call.id, call.name, changed)
        """The call as it is made: with the arguments that a person put in place of the model's, if one did."""
        self.answers: Final = dict(was.answers)
        self.kept = was.kept
        self.started = was.started
        self.open = was.interrupts
        self.result: Final = was.result
        self._approved: Final = was.approved
        self._changed: Final = changed

    @property
    def changed_arguments(self) -> dict[str, Any] | None:
        """The arguments that a person put in place of the model's."""
        return self._changed

    def ask(self, name: str, reason: Any, *, expires_in: float | None = None) -> Any:
        """The answer, or, when there is none yet, the way out: raises `InterruptSignal`. From any thread."""
        if name in self.answers:
            return self.answers[name]
        raise InterruptSignal(self._interrupt(name, "question", reason, expires_in))

    async def check_approval(self, tool: Tool, arguments: dict[str, Any]) -> None:
        """Raises `InterruptSignal` unless the call may go on without a person, or a person has said yes."""
        if self._approved or not tool.requires_approval:
            return
        wanted, reason = True, None
        if callable(tool.requires_approval):
            try:
                answer = tool.requires_approval(arguments)
                wanted = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # when in doubt, ask
                reason = f"Whether an approval is needed could not be told: {type(error).__name__}: {error}"
        if wanted:
            raise InterruptSignal(self._interrupt(APPROVAL, APPROVAL, reason, tool.approval_expires_in))

    def pending(self, result: ToolResult | None) -> PendingCall:
        """The call as it waits in a `PendingTurn`."""
        return PendingCall(
            self._as_asked,
            result,
            () if result is not None else self.open,
            self.answers,
            self._approved,
            self._changed,
            self.started,
            self.kept,
        )

    def _interrupt(
        self, name: str, kind: Literal["approval", "question"], reason: Any, expires_in: float | None
    ) -> Interrupt:
        now = time.time()
        return Interrupt(
            id=f"{self.call.id}:{name}",
            name=name,
            kind=kind,
            call_id=self.call.id,
            tool_name=self.call.name,
            arguments=self.call.arguments,
            reason=_plain(reason),
            asked_at=now,
            expires_at=None if expires_in is None else now + expires_in,
        )


def _plain(reason: Any) -> Any:
    if reason is None or isinstance(reason, str):
        return reason
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(reason)
    except PydanticSerializationError as error:
        raise ToolError(f"The reason of an interrupt must have a JSON form: {error}") from None
