"""The effect of a completed call, and the form in which it is stored, so that it can be undone after a restart."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from ...errors import ToolError
from ...messages import ToolCall
from ...receipt import Undone, UndoReceipt
from .compensation import Compensation

if TYPE_CHECKING:
    from ..host import ToolHost
    from ..tool import Tool
    from .log import UndoLog

# The named values of a session that are crashes of its runs: their calls may have had effects, too.
CRASHED: Final = "crash."
_INTERRUPTED: Final = "The process ended while it was being undone."


class StoredEffect(Struct, frozen=True):
    """An effect as it is stored: the call, what it was made with, and what it gave back.

    `value` is that in JSON; `is_restorable` says whether it has such a form. An effect that is `claimed` and has no
    `receipt` was being undone when the process ended. `cut` says why what the call did is not known; it is empty for a
    call that can be undone. `told` says that the receipt was returned to the caller, and the model was told.
    """

    run_id: str
    agent: str
    call: ToolCall
    arguments: dict[str, Any]
    value: Any = None
    is_restorable: bool = False
    claimed: bool = False
    receipt: UndoReceipt | None = None
    cut: str = ""
    told: bool = False

    @property
    def untold(self) -> UndoReceipt | None:
        """The outcome of an undo, as long as it was not told: the process ended before it could be."""
        if self.told or not self.claimed:
            return None
        return self.receipt or UndoReceipt(self.call.id, self.call.name, Undone.UNKNOWN, _INTERRUPTED)


class Effect:
    """The effect of a call. It can be undone at most once; that of a call that was cut is only reported."""

    def __init__(
        self, log: UndoLog, stored: StoredEffect, invoke: Callable[[], Any] | None, compensation: Compensation | None
    ) -> None:
        self.log: Final = log
        self.number = 0
        """The number under which the effect is stored; the log of the task assigns it."""
        self.compensation = compensation
        self._stored = stored
        self._invoke = invoke
        self._claims: Final[dict[str, object]] = {}

    @property
    def call(self) -> ToolCall:
        """The call."""
        return self._stored.call

    @property
    def stored(self) -> StoredEffect:
        """The effect as it is to be stored now."""
        return self._stored

    @property
    def key(self) -> tuple[str, str]:
        """What tells this effect from others of the task."""
        return self._stored.run_id, self._stored.call.id

    @property
    def settled(self) -> tuple[Undone, str] | None:
        """The outcome of an undo that is known without trying, and a sentence about it."""
        if self._stored.claimed and self._stored.receipt is None and not self.claimed:
            return Undone.UNKNOWN, _INTERRUPTED
        return (Undone.NOT_UNDONE, self._stored.cut) if self._stored.cut else None

    def claim(self) -> bool:
        """Claim the undo of this effect. Atomic: of several claims, from any threads, exactly one returns True."""
        mine = object()
        if self._claims.setdefault("claim", mine) is not mine:
            return False
        self._stored = msgspec.structs.replace(self._stored, claimed=True)
        return True

    def unclaim(self) -> None:
        """Give a claim up that could not be saved: nothing was undone."""
        self._stored = msgspec.structs.replace(self._stored, claimed=False)
        self._claims.clear()

    @property
    def claimed(self) -> bool:
        """Whether the undo of this effect was claimed."""
        return bool(self._claims)

    def note_outcome(self, receipt: UndoReceipt) -> None:
        """Note what became of the undo."""
        self._stored = msgspec.structs.replace(self._stored, receipt=receipt)

    def mark_told(self) -> None:
        """Note that the outcome was told."""
        self._stored = msgspec.structs.replace(self._stored, told=True)

    def update(self, stored: StoredEffect) -> None:
        """Take over what another process has done about the same effect.

        An undo that the process did not come to the end of is not claimed here: it is to be reported.
        """
        self._stored = stored
        if stored.receipt is not None:
            self._claims.setdefault("claim", object())

    def restore(self, find_tool: Callable[[str, str], Tool | None]) -> None:
        """Find the undo function of an effect that an earlier process has made; `find_tool` takes agent and tool."""
        stored = self._stored
        if self._invoke is not None or stored.claimed or stored.cut:
            return
        tool = find_tool(stored.agent, stored.call.name)
        if tool is not None and tool.compensation is not None:
            self.compensation = tool.compensation
            self._invoke = lambda: _invoke_restored(stored, tool)

    @property
    def can_be_invoked(self) -> bool:
        """Whether the undo function is known here."""
        return self._invoke is not None

    def invoke(self) -> Any:
        """Call the compensation."""
        assert self._invoke is not None
        return self._invoke()


def completed_effect(
    host: ToolHost, call: ToolCall, compensation: Compensation, arguments: dict[str, Any], value: Any
) -> Effect:
    """The effect of a call that has just completed."""
    plain, is_restorable = _plain(value, compensation)
    stored = StoredEffect(host.run_id, host.context.agent, call, call.arguments, plain, is_restorable)

    def invoke() -> Any:
        return compensation.function(**compensation.bind(arguments, value))

    return Effect(host.undo_log, stored, invoke, compensation)


def cut_effect(log: UndoLog, run_id: str, agent: str, call: ToolCall, why: str) -> Effect:
    """The effect of a call that can no longer be undone, because it is not known what the call did."""
    return Effect(log, StoredEffect(run_id, agent, call, call.arguments, cut=why), None, None)


# --- The stored form -------------------------------------------------------------------------------------------------


def _plain(value: Any, compensation: Compensation) -> tuple[Any, bool]:
    """A value in JSON, and whether the undo function gets the same value from that."""
    if not compensation.takes_result:
        return None, True
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_model)
        restored = _restored(plain, compensation)
    except Exception:  # a type of the user's own can raise anything here
        return None, False
    return plain, type(restored) is type(value)


def _restored(plain: Any, compensation: Compensation) -> Any:
    """The value of a call from its JSON, as the undo function's annotation of `result` says."""
    annotation = _annotation(compensation.function)
    return plain if annotation is Any else msgspec.convert(plain, annotation, dec_hook=_decode_model)


def _annotation(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("result", Any)
    except Exception:  # such as the name of a class that is local to a function
        return Any


def _encode_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError
    return dump(mode="json")


def _decode_model(kind: Any, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError
    return validate(value)


def _invoke_restored(stored: StoredEffect, tool: Tool) -> Any:
    """Call the undo function of a call that an earlier process made."""
    compensation = tool.compensation
    assert compensation is not None
    if not stored.is_restorable:
        raise ToolError("What the tool returned has no JSON form, so it was lost with its process.")
    value = _restored(stored.value, compensation)
    return compensation.function(**compensation.bind(tool.validate(stored.arguments), value))
