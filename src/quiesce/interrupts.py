"""Asking a person: what is asked, what can be answered, and the turn that waits for it.

A turn that waits is not part of the conversation yet, because no provider accepts a call without a result. It is kept
beside the conversation, as a `PendingTurn`. All types here serialise with msgspec, so that a turn can wait in another
process than the one that asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ._exact import NotJSON, exact
from .errors import InterruptExpired, InvalidAnswer, ToolError, UnknownInterrupt
from .messages import AssistantMessage, Outcome, Text, ToolCall, ToolResult

APPROVAL: Final = "approval"

DENIED: Final[Mapping[bool, str]] = {
    False: "Not run: a person said no.",
    True: "Stopped while it was running: a person said no. Its work may be incomplete.",
}
EXPIRED: Final[Mapping[bool, str]] = {
    False: "Not run: there was no answer in time.",
    True: "Stopped while it was running: there was no answer in time. Its work may be incomplete.",
}
NOT_ANSWERED: Final[Mapping[bool, str]] = {
    False: "Not run: a person was asked first, and did not answer.",
    True: "Stopped while it was running: a person was asked, and did not answer. Its work may be incomplete.",
}

# --- Asked and answered --------------------------------------------------------------------------------------------


class Interrupt(Struct, frozen=True):
    """A question to a person, asked by or about one tool call, or about a limit.

    `kind` is `approval` for a tool that must be approved, `question` for what a tool or a hook asked with
    `interrupt()`, and `limit` for a limit that the run has reached: `reason` then has the keys `limit`, `allowed`,
    `used` and `message`. `expires_at` is in seconds since the epoch; an answer after that is not accepted.

    The `arguments` of an approval are those that the tool is called with: coerced, and with the defaults. `preview` is
    text that shows what the call would do, such as a diff.
    """

    id: str
    name: str
    kind: Literal["approval", "question", "limit"]
    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    reason: Any = None
    asked_at: float = 0.0
    expires_at: float | None = None
    preview: str | None = None

    def expired(self, now: float | None = None) -> bool:
        """Whether it is too late to answer."""
        return self.expires_at is not None and (time.time() if now is None else now) >= self.expires_at


class Approval(Struct, frozen=True):
    """Returned by a `requires_approval` function: an approval is needed. `preview` shows what the call would do."""

    preview: str | None = None
    reason: Any = None


class Approve(Struct, frozen=True, tag="approve"):
    """Yes. With `arguments`, the tool is called with these instead; its result then tells the model so."""

    arguments: dict[str, Any] | None = None


class Deny(Struct, frozen=True, tag="deny"):
    """No. The call is answered with the reason and the tool is not called; the other calls are not touched."""

    reason: str = ""


# No limit is raised by more. A number with a huge exponent would take for ever to become an integer.
_MOST_ALLOWED: Final = 10**15

Answers: TypeAlias = Mapping[str, object]
"""Answers by the id of the interrupt. For an approval: True, False, `Approve` or `Deny`. For a question: any JSON-like
value, which `interrupt()` then returns, or `Approve(arguments=...)` or `Deny`. For a limit: True (as much again), how
much more is allowed, or False, which ends the run."""


class AnswerRecord(Struct, frozen=True):
    """Who has answered an interrupt, and how. It is for people: the model never gets it.

    `by` is the owner of the run that took the answer: on a server, the name of the API key. `reason` is that of a no.
    `arguments` are those that replace the model's. `standing` is the id of the approval that was given in advance, when
    the call was approved by one.
    """

    interrupt_id: str
    call_id: str
    tool_name: str
    decision: Literal["approved", "denied", "answered"]
    by: str = ""
    at: float = 0.0
    reason: str = ""
    arguments: dict[str, Any] | None = None
    standing: str = ""


def answer_records(interrupts: Iterable[Interrupt], answers: Answers, by: str) -> list[AnswerRecord]:
    """The records of the interrupts that have an answer."""
    return [_record(each, answers[each.id], by) for each in interrupts if each.id in answers]


def _record(interrupt: Interrupt, answer: Any, by: str) -> AnswerRecord:
    record = AnswerRecord(interrupt.id, interrupt.call_id, interrupt.tool_name, "approved", by, time.time())
    match answer:
        case False if interrupt.kind != "question":
            return replace(record, decision="denied")
        case Deny(reason):
            return replace(record, decision="denied", reason=reason)
        case Approve(arguments):
            return replace(record, arguments=arguments)
        case _:
            return record if interrupt.kind != "question" else replace(record, decision="answered")


ArgumentCheck: TypeAlias = Callable[[ToolCall, dict[str, Any]], dict[str, Any]]
"""Validates the arguments that a person gives for a call, and returns them frozen. Raises `ToolError`."""


class InterruptSignal(BaseException):
    """How a call leaves its tool to ask. Not an `Exception`, so that a tool's `except Exception` lets it pass.

    `kept` is given back to the tool, as `ctx.kept`, when it is called again: for a tool that waits for something that
    waits itself, such as another agent.
    """

    def __init__(self, *interrupts: Interrupt, kept: Any = None) -> None:
        self.interrupts: Final = interrupts
        self.kept: Final = kept
        super().__init__(f"asked a person: {', '.join(each.name for each in interrupts)}")


# --- Waiting -------------------------------------------------------------------------------------------------------


class PendingCall(Struct, frozen=True):
    """One call of a turn that waits: finished, waiting for a person, or not begun.

    `started` says that the tool's own code has run up to its question; `answers` are the earlier answers, by name;
    `arguments` are those that a person put in place of the model's. `frozen` are the validated arguments that a person
    was shown, which are the ones that an approval is for; `fingerprint` is the definition of the tool at that time.
    """

    call: ToolCall
    result: ToolResult | None = None
    interrupts: tuple[Interrupt, ...] = ()
    answers: dict[str, Any] = {}
    approved: bool = False
    arguments: dict[str, Any] | None = None
    started: bool = False
    kept: Any = None
    frozen: dict[str, Any] | None = None
    fingerprint: str | None = None


class UsedBudget(Struct, frozen=True):
    """What a run has used of its limits."""

    turns: int = 0
    tool_calls: int = 0
    input: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)


class PendingLimit(Struct, frozen=True):
    """A limit that waits to be raised by a person.

    `used` is what the run had used, which the run that goes on counts from; `limits` are the limits that it had.
    `raised` are those that were raised, with their new values; `steps` is what True adds to each. `refused` says that
    the person said no.
    """

    interrupt: Interrupt
    name: str
    allowed: Decimal
    steps: dict[str, Decimal]
    words: str
    used: UsedBudget = UsedBudget()
    limits: dict[str, Decimal] = {}
    raised: dict[str, Decimal] = {}
    refused: bool = False


class PendingTurn(Struct, frozen=True):
    """An answer whose tools wait for a person, with the results that are there already; or a turn that waits for more.

    `taken_by` is the run that goes on with it. Found in a stored conversation, it means that this run never ended.
    `handed` are the handoffs by which the agent whose turn it is came to have the conversation. `limit` is the limit
    that is to be raised first; the answer is empty when it was reached before the model was called.
    """

    run_id: str
    answer: AssistantMessage
    calls: tuple[PendingCall, ...]
    taken_by: str | None = None
    handed: tuple[str, ...] = ()
    limit: PendingLimit | None = None

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What is asked, in the order of the calls."""
        if self.limit is not None:
            return (self.limit.interrupt,)
        return tuple(interrupt for call in self.calls for interrupt in call.interrupts)

    def call(self, call_id: str) -> PendingCall | None:
        """The call with this id."""
        return next((each for each in self.calls if each.call.id == call_id), None)


def pass_on(interrupts: Iterable[Interrupt], call_id: str) -> tuple[Interrupt, ...]:
    """What is asked inside a call, as asked by the call. Its answers have the inner ids as names."""
    return tuple(replace(each, id=f"{call_id}:{each.id}", name=each.id, call_id=call_id) for each in interrupts)


def checked_answers(answers: Answers) -> Answers:
    """A copy of the answers. Raises `InvalidAnswer` for what is not a dict."""
    if not isinstance(answers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidAnswer(
            f"Answers are a dict, not {answers!r:.100}.",
            todo="Use the id of each interrupt: answer({interrupt.id: True}).",
        )
    return {**answers}


def answer_turn(
    pending: PendingTurn, answers: Answers, check: ArgumentCheck, *, taken_by: str, now: float | None = None
) -> PendingTurn:
    """The turn with the answers in it, ready to go on; what was not answered in time is answered as such.

    Raises `UnknownInterrupt`, `InterruptExpired` or `InvalidAnswer`; nothing is changed then.
    """
    clock = time.time() if now is None else now
    _check_asked(pending.interrupts, answers, clock)
    if pending.limit is not None:
        limit = _answer_limit(pending.limit, answers[pending.limit.interrupt.id])
        return replace(pending, limit=limit, taken_by=taken_by)
    return replace(pending, calls=answer_calls(pending.calls, answers, check, now=clock), taken_by=taken_by)


def answer_calls(
    calls: Iterable[PendingCall], answers: Answers, check: ArgumentCheck, *, now: float | None = None
) -> tuple[PendingCall, ...]:
    """The calls with the answers in them. Raises like `answer_turn`."""
    clock = time.time() if now is None else now
    calls = tuple(calls)
    _check_asked([interrupt for call in calls for interrupt in call.interrupts], answers, clock)
    return tuple(_answer_call(call, answers, check, clock) for call in calls)


def _check_asked(interrupts: Iterable[Interrupt], answers: Answers, now: float) -> None:
    asked = {interrupt.id: interrupt for interrupt in interrupts}
    for interrupt_id in answers:
        if interrupt_id not in asked:
            raise UnknownInterrupt(interrupt_id, asked)
        if asked[interrupt_id].expired(now):
            raise InterruptExpired(interrupt_id)
    if not answers and not any(interrupt.expired(now) for interrupt in asked.values()):
        raise InvalidAnswer("No answer was given.", todo=f"Answer at least one of: {', '.join(asked)}.")


def _answer_limit(limit: PendingLimit, answer: Any) -> PendingLimit:
    """The limit with the answer in it: raised above what was used, or refused."""
    if answer is False or isinstance(answer, Deny):
        return replace(limit, refused=True)
    more = limit.steps[limit.name] if answer is True or isinstance(answer, Approve) else _amount(limit, answer)
    used = limit.used
    spent = {"tokens": used.input + used.output, "output_tokens": used.output, "cost": used.cost}
    base = max(limit.allowed, Decimal(spent.get(limit.name, 0)))
    return replace(limit, raised={**limit.raised, limit.name: base + more})


def _amount(limit: PendingLimit, answer: Any) -> Decimal:
    """How much more is allowed. Raises `InvalidAnswer` unless it is a positive number, whole except for money."""
    try:
        amount = Decimal(str(answer)) if isinstance(answer, int | float | str | Decimal) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    in_range = amount.is_finite() and 0 < amount < _MOST_ALLOWED
    if not in_range or (limit.name != "cost" and amount != amount.to_integral_value()):
        raise InvalidAnswer(
            f"{limit.interrupt.id!r} asks whether a limit is raised, and {answer!r} is no answer to that.",
            todo="Answer with True (as much again), with how much more is allowed, or with False.",
        )
    return amount


def _answer_call(call: PendingCall, answers: Answers, check: ArgumentCheck, now: float) -> PendingCall:
    given = {each.name: answers[each.id] for each in call.interrupts if each.id in answers}
    for interrupt in call.interrupts:
        answer = given.get(interrupt.name)
        if call.kept is not None or isinstance(answer, Deny):
            _plain(interrupt, answer, Deny if isinstance(answer, Deny) else object)
    if call.kept is not None and given:  # the tool passes them on to the agent that asked through it
        return replace(call, interrupts=(), answers=given)
    for interrupt in call.interrupts:
        if interrupt.name in given:
            call = _answer_one(call, interrupt, given[interrupt.name], check)
        elif interrupt.expired(now):
            call = replace(call, result=_refusal(call, EXPIRED[call.started], ""), interrupts=())
        if call.result is not None:
            break
    return call


def _answer_one(call: PendingCall, interrupt: Interrupt, answer: Any, check: ArgumentCheck) -> PendingCall:
    rest = tuple(each for each in call.interrupts if each is not interrupt)
    is_approval = interrupt.kind == APPROVAL
    if is_approval and isinstance(answer, bool):
        answer = Approve() if answer else Deny()
    match answer:
        case Deny(reason):
            return replace(call, result=_refusal(call, DENIED[call.started], reason), interrupts=())
        case Approve(arguments):
            answers = call.answers if is_approval else {**call.answers, interrupt.name: True}
            approved = call.approved or is_approval
            if arguments is not None:
                arguments = _plain(interrupt, arguments)
                frozen = _checked_arguments(call, interrupt, arguments, check)
                call = replace(call, arguments=arguments, frozen=frozen)
            return replace(call, interrupts=rest, answers=answers, approved=approved)
        case _ if is_approval:
            raise InvalidAnswer(
                f"{interrupt.id!r} asks for an approval, and {answer!r} is none.",
                todo="Answer with True, False, Approve(...) or Deny(...).",
            )
        case _:
            answer = _plain(interrupt, answer)
            return replace(call, interrupts=rest, answers={**call.answers, interrupt.name: answer})


def _checked_arguments(call: PendingCall, interrupt: Interrupt, arguments: Any, check: ArgumentCheck) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise InvalidAnswer(f"The arguments for {interrupt.id!r} are {arguments!r:.100}, not a dict.")
    try:
        return check(call.call, arguments)  # pyright: ignore[reportUnknownArgumentType]
    except ToolError as error:
        raise InvalidAnswer(
            f"The answer to {interrupt.id!r} is not accepted. {error}",
            todo="Answer again: the call is still asked about.",
        ) from None


def _plain(interrupt: Interrupt, value: Any, kind: Any = object) -> Any:
    """An answer as JSON has it. It is kept with the turn when the tool asks again."""
    try:
        return exact(value, kind)
    except NotJSON:
        raise InvalidAnswer(
            f"The answer to {interrupt.id!r} cannot be written as JSON.", todo="Answer with plain values."
        ) from None


def _refusal(call: PendingCall, sentence: str, reason: str) -> ToolResult:
    outcome = Outcome.CANCELLED if call.started else Outcome.NEVER_STARTED
    text = f"{sentence} Reason: {reason}" if reason.strip() else sentence
    return ToolResult(call.call.id, call.call.name, (Text(text),), outcome, is_error=True)
