"""The questions that one tool call asks a person, and the answers."""

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
    """The answers that one call was given, and the interrupts that it waits for.

    `earlier` is how far an earlier run has come with the same call, before it waited for a person.
    """

    def __init__(self, call: ToolCall, earlier: PendingCall | None = None) -> None:
        earlier = earlier or PendingCall(call)
        changed = earlier.arguments
        self._original_call: Final = call
        self.call = call if changed is None else ToolCall(call.id, call.name, changed)
        """The call as it is made: a person, or middleware, may have changed the model's arguments."""
        self.answers: Final = dict(earlier.answers)
        self.kept = earlier.kept
        self.started = earlier.started
        self.interrupts = earlier.interrupts
        self.result: Final = earlier.result
        self._approved: Final = earlier.approved
        self.changed_arguments: Final = changed
        """The arguments that a person put in place of the model's; None if there are none."""

    def ask(self, name: str, reason: Any, *, expires_in: float | None = None) -> Any:
        """The answer to the question `name`. Raises `InterruptSignal` while there is none. From any thread."""
        if name in self.answers:
            return self.answers[name]
        raise InterruptSignal(self._interrupt(name, "question", reason, expires_in))

    async def check_approval(self, tool: Tool, arguments: dict[str, Any]) -> None:
        """Raises `InterruptSignal` if the call needs an approval that it does not have."""
        if self._approved or not tool.requires_approval:
            return
        needed, reason = True, None
        if callable(tool.requires_approval):
            try:
                answer = tool.requires_approval(arguments)
                needed = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # when in doubt, ask
                reason = f"Whether an approval is needed is not known: {type(error).__name__}: {error}"
        if needed:
            raise InterruptSignal(self._interrupt(APPROVAL, APPROVAL, reason, tool.approval_expires_in))

    def pending(self, result: ToolResult | None) -> PendingCall:
        """The call as it waits in a `PendingTurn`; `result` if it has one already."""
        return PendingCall(
            self._original_call,
            result,
            () if result is not None else self.interrupts,
            self.answers,
            self._approved,
            self.changed_arguments,
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
            reason=_as_json_value(reason),
            asked_at=now,
            expires_at=None if expires_in is None else now + expires_in,
        )


def _as_json_value(reason: Any) -> Any:
    if reason is None or isinstance(reason, str):
        return reason
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(reason)
    except PydanticSerializationError as error:
        raise ToolError(f"The reason of an interrupt must have a JSON form: {error}") from None
