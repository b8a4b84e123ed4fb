"""What a stop did: the receipt, which a tired person can read."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct, field

from .cancellation.cause import Cause, Mode
from .messages import Outcome
from .phases import Phase
from .task import Task
from .usage.ledger import Usage

StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "pause",
    "interrupt",
    "steered",
    "cancelled",
    "limit",
    "error",
]
EndReason: TypeAlias = StopReason | Literal["crashed"]
"""How a run ended, as its receipt has it: "crashed" is written later, by the process that finds its session."""

if TYPE_CHECKING:
    ReadableStopReason: TypeAlias = EndReason
else:  # what another version has stored can be read
    ReadableStopReason = str


class LateOutcome(Struct, frozen=True, gc=False):
    """What became of an abandoned call after the run had ended."""

    call_id: str
    name: str
    ok: bool
    detail: str
    after: float


class Undone(StrEnum):
    """What became of one undo. Never more than is known to be true."""

    UNDONE = "undone"
    FAILED = "failed"
    NOT_UNDONE = "not_undone"
    UNKNOWN = "unknown"


class UndoReceipt(Struct, frozen=True, gc=False):
    """What became of the undo of one tool call."""

    call_id: str
    name: str
    outcome: Undone
    detail: str = ""
    seconds: float | None = None


class LimitUse(Struct, frozen=True, gc=False):
    """A limit of the run, what it has used of it, and whether that is why it did not go on."""

    name: str
    allowed: str
    used: str = ""
    reached: bool = False


class CallReceipt(Struct, frozen=True, gc=False):
    """What became of one tool call of the run."""

    call_id: str
    name: str
    outcome: Outcome
    ok: bool = True
    """Whether the tool came to its own end, without an error."""
    detail: str = ""
    seconds: float | None = None
    waits: bool = False
    """For a person. `outcome` is then the outcome without an answer."""
    full_length: int | None = None
    """The characters of the whole result, when the model got it without its middle."""


# It is not frozen: a reader that has it gets what becomes known after the end, by `update_receipt`.
class Receipt(Struct):
    """What happened from "stop seen" to "at rest".

    `cause` is None when the run ended by itself. `phase` is where the stop took effect, `asked_during` where it was
    asked for: a patient stop waits in between. `latency` is the time in seconds from the request to the end.
    `still_running` names what could not be proved to have stopped, and background processes that go on while the task
    waits for a person; empty means that nothing is left. `processes` are all background processes of the task, with how
    each ended. Late outcomes of abandoned calls are appended to `late` when they land, and what became of each undo to
    `undo`. `limits` are those of the run, with what it has used; a run that goes on with a task shares them with the
    earlier runs. `task` sums up all runs of the task so far. `saved` says whether all of the run is in the store of the
    conversation (None: it has none), and `unsaved` why not: also when the run ended before its session was open, and
    its prompt was not sent.
    """

    run_id: str
    stop_reason: ReadableStopReason
    cause: Cause | None
    mode: Mode | None
    phase: Phase
    latency: float | None
    calls: tuple[CallReceipt, ...]
    still_running: tuple[str, ...]
    usage: Usage
    kept_text: int = 0
    waited_for: tuple[str, ...] = ()
    asked_during: Phase | None = None
    saved: bool | None = None
    unsaved: str = ""
    limits: tuple[LimitUse, ...] = ()
    task: Task | None = None
    processes: tuple[str, ...] = ()
    late: list[LateOutcome] = field(default_factory=list)
    undo: list[UndoReceipt] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def update_receipt(
    receipt: Receipt,
    *,
    latency: float | None = None,
    still_running: tuple[str, ...] | None = None,
    usage: Usage | None = None,
    unsaved: str | None = None,
) -> None:
    """Put on a receipt what became known after it was built: at the very end of its run, or later.

    Besides, the run appends to the lists `late` and `undo`. Nothing else changes a receipt.
    """
    if latency is not None:
        receipt.latency = latency
    if still_running is not None:
        receipt.still_running = still_running
    if usage is not None:
        receipt.usage = usage
    if unsaved is not None:
        receipt.saved, receipt.unsaved = False, unsaved


_PLAIN = {
    Outcome.NEVER_STARTED: "never started",
    Outcome.COMPLETED: "completed",
    Outcome.CANCELLED: "cancelled while running",
    Outcome.KILLED: "killed",
    Outcome.ABANDONED: "abandoned, may still be running",
    Outcome.UNKNOWN: "unknown",
}

_UNDONE = {
    Undone.UNDONE: "undone",
    Undone.FAILED: "the undo failed",
    Undone.NOT_UNDONE: "not undone",
    Undone.UNKNOWN: "not known whether it is undone",
}

_DURING = {
    Phase.WAITING: "before its turn had come",
    Phase.CREATED: "before anything was sent",
    Phase.TURN_START: "between two model calls",
    Phase.CALLING: "waiting for the model",
    Phase.STREAMING: "while the model was answering",
    Phase.BACKING_OFF: "waiting to retry the model",
    Phase.ANSWERED: "after the answer, before its tools",
    Phase.ACTING: "while tools were running",
    Phase.TURN_END: "after the tools",
    Phase.STEERING: "while it was being steered",
}


def _lines(receipt: Receipt) -> list[str]:
    lines = [_headline(receipt)]
    if receipt.cause is not None:
        lines.append(f"  when      {_when(receipt)}")
        if receipt.latency is not None:
            lines.append(f"  at rest   {_duration(receipt.latency)} after the request, mode {receipt.mode}")
        if receipt.waited_for:
            lines.append(f"  waited    for {', '.join(receipt.waited_for)}")
        if receipt.kept_text:
            lines.append(f"  kept      {receipt.kept_text:,} characters of the answer that was cut")
    if any(limit.reached for limit in receipt.limits):
        lines.append(f"  limits    {', '.join(map(_limit_text, receipt.limits))}")
    for title, texts in (
        ("tools", call_lines(receipt.calls)),
        ("undo", map(_undo_text, receipt.undo)),
        ("processes", receipt.processes),
    ):
        lines.extend(f"  {'' if index else title:<9} {text}" for index, text in enumerate(texts))
    if receipt.cause is not None or receipt.still_running:
        lines.append(f"  running   {', '.join(receipt.still_running) or 'nothing is left running'}")
    tokens = receipt.usage
    if tokens.calls:
        calls = f"{tokens.calls} model call{'' if tokens.calls == 1 else 's'}"
        lines.append(f"  tokens    {tokens.input} in, {tokens.output} out ({calls})")
    if tokens.cost is not None:
        lines.append(f"  cost      {tokens.cost}")
    if receipt.task is not None and len(receipt.task.run_ids) > 1:
        lines.append(f"  task      {_task_text(receipt.task)}")
    if receipt.saved is False:
        lines.append(f"  NOT SAVED {receipt.unsaved}")
    lines.extend(late_line(late) for late in receipt.late)
    return lines


def call_lines(calls: Iterable[CallReceipt]) -> list[str]:
    """The calls for people, one line each. Calls in a row with the same outcome share one: `search x25: completed`."""
    lines: list[str] = []
    for (name, word), group in groupby(calls, lambda call: (call.name, _outcome_text(call))):
        same = list(group)
        times = f" x{len(same)}" if len(same) > 1 else ""
        known = [call.seconds for call in same if call.seconds is not None]
        took = f" ({_duration(sum(known))})" if known else ""
        lines.append(f"{name}{times}: {word}{took}")
    return lines


def _outcome_text(call: CallReceipt) -> str:
    word = "waits for a person" if call.waits else _PLAIN[call.outcome]
    return word if call.ok or call.outcome is not Outcome.COMPLETED else f"{word} with an error"


def _undo_text(undo: UndoReceipt) -> str:
    why = f": {undo.detail}" if undo.detail else ""
    return f"{undo.name} ({undo.call_id}): {_UNDONE[undo.outcome]}{why}"


def _limit_text(limit: LimitUse) -> str:
    name = limit.name.replace("_", " ")
    return f"{name} {limit.used} of {limit.allowed} (reached)" if limit.reached else f"{name} {limit.allowed}"


def _task_text(task: Task) -> str:
    """All runs of a task, for people."""
    used, usage = task.used, task.usage
    parts = [f"{used.turns} turn{'' if used.turns == 1 else 's'}"]
    parts.append(f"{used.tool_calls} tool call{'' if used.tool_calls == 1 else 's'}")
    parts.append(f"{usage.input} tokens in, {usage.output} out")
    if usage.cost is not None:
        parts.append(str(usage.cost))
    return f"{len(task.run_ids)} runs in {_duration(task.seconds)}: {', '.join(parts)}"


def late_line(late: LateOutcome) -> str:
    """What became of a call that had been given up, for people."""
    return f"  later     {late.name} {'finished' if late.ok else 'failed'} {_duration(late.after)} after the end"


def undo_note(receipts: Iterable[UndoReceipt]) -> str:
    """A note on an undo for the model, so that it does not count on what was taken back."""
    undone = tuple(receipts)
    if not undone:
        return ""
    parts: list[str] = []
    for words, kinds in (
        ("Undone since", (Undone.UNDONE,)),
        ("Not undone", (Undone.NOT_UNDONE, Undone.FAILED)),
        ("Not known whether undone", (Undone.UNKNOWN,)),
    ):
        names = [f"{each.name} ({each.call_id})" for each in undone if each.outcome in kinds]
        if names:
            parts.append(f" ({words}: {', '.join(names)}.)")
    return "".join(parts)


def _when(receipt: Receipt) -> str:
    if _has_last_answer(receipt):
        return "at the limit, after the last answer"
    took_effect = _DURING.get(receipt.phase, receipt.phase.value)
    asked = None if receipt.asked_during is None else _DURING.get(receipt.asked_during)
    if asked is None or asked == took_effect or receipt.mode in (Mode.NOW, Mode.KILL):
        return took_effect
    return f"asked for {asked}, took effect {took_effect}"


def _has_last_answer(receipt: Receipt) -> bool:
    """Whether the model has answered once more at a limit (`on_limit="answer"`): only such a limit is that patient."""
    cause = receipt.cause
    return receipt.stop_reason == "limit" and cause is not None and cause.mode is Mode.AFTER_TURN


_OWN_ENDS: Final = {"interrupt": "waits for a person", "error": "failed"}


def _headline(receipt: Receipt) -> str:
    if receipt.stop_reason == "crashed":
        return f"Run {receipt.run_id} crashed: its process ended, or was lost, before the run was at rest."
    if receipt.cause is None:
        return f"Run {receipt.run_id} {_OWN_ENDS.get(receipt.stop_reason, 'ended by itself')} ({receipt.stop_reason})."
    return f"Run {receipt.run_id} was stopped ({receipt.cause})."


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
