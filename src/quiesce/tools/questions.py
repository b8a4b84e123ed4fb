"""The questions that one tool call asks a person, and the answers."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from ..errors import ToolError
from ..interrupts import APPROVAL, Approval, Interrupt, InterruptSignal, PendingCall
from ..messages import ToolCall, ToolResult
from .approval import CHANGED, fingerprint, frozen_arguments, shown_arguments, wanted_approval
from .output import well_formed_value

if TYPE_CHECKING:
    from .host import ToolHost
    from .tool import Tool


class CallQuestions:
    """The answers that one call was given, and the interrupts that it waits for.

    `earlier` is how far an earlier run has come with the same call, before it waited for a person. `approved` says that
    a person, or a hook, has approved the call as it is frozen.
    """

    __slots__ = (
        "_fingerprint",
        "_frozen",
        "_original_call",
        "answers",
        "approved",
        "call",
        "changed_arguments",
        "interrupts",
        "kept",
        "result",
        "started",
    )

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
        self.approved = earlier.approved
        self._frozen = earlier.frozen
        self._fingerprint = earlier.fingerprint
        self.changed_arguments: Final = changed
        """The arguments that a person put in place of the model's; None if there are none."""

    def ask(self, name: str, reason: Any, *, expires_in: float | None = None) -> Any:
        """The answer to the question `name`. Raises `InterruptSignal` while there is none. From any thread."""
        if name in self.answers:
            return self.answers[name]
        raise InterruptSignal(self._interrupt(name, "question", reason, expires_in))

    def approved_call(self, tool: Tool) -> ToolCall:
        """The call as it is made: after an approval, exactly the one that the person was shown."""
        if self.approved and self._frozen is not None and self._fingerprint == fingerprint(tool):
            self.call = ToolCall(self.call.id, self.call.name, deepcopy(self._frozen))
        return self.call

    async def check_approval(self, tool: Tool, arguments: dict[str, Any], host: ToolHost) -> dict[str, Any]:
        """The arguments to call the tool with. Raises `InterruptSignal` if an approval is missing.

        An approval counts for the definition of the tool that the person was shown.
        """
        has_changed = self.approved and self._fingerprint not in (None, fingerprint(tool))
        if not has_changed and (self.approved or not tool.requires_approval):
            return arguments
        frozen = frozen_arguments(tool, self.call.arguments, arguments)
        wanted = await wanted_approval(tool, frozen, host.context)
        if has_changed:  # also when the new definition needs no approval: the person has approved something else
            wanted = Approval(None if wanted is None else wanted.preview, CHANGED)
        if wanted is None:
            return arguments
        self.approved, self._frozen, self._fingerprint = False, frozen, fingerprint(tool)
        asked = self._approval_interrupt(tool, wanted, frozen)
        if has_changed or not await host.approves(asked, fingerprint(tool)):
            raise InterruptSignal(asked)
        self.approved = True
        return tool.validate(self.approved_call(tool).arguments)

    def _approval_interrupt(self, tool: Tool, wanted: Approval, frozen: dict[str, Any]) -> Interrupt:
        asked = self._interrupt(APPROVAL, APPROVAL, wanted.reason, tool.approval_expires_in)
        return replace(asked, arguments=shown_arguments(tool, frozen), preview=wanted.preview)

    def pending(self, result: ToolResult | None) -> PendingCall:
        """The call as it waits in a `PendingTurn`; `result` if it has one already."""
        return PendingCall(
            self._original_call,
            result,
            () if result is not None else self.interrupts,
            self.answers,
            self.approved,
            self.changed_arguments,
            self.started,
            self.kept,
            self._frozen,
            self._fingerprint,
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
        return well_formed_value(reason)
    from pydantic_core import to_jsonable_python

    try:
        return well_formed_value(to_jsonable_python(reason))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"The reason of an interrupt must have a JSON form: {error}") from None
