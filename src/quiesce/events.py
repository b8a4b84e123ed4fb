"""What happened: one frozen, typed event for each thing that a run does.

`Event` is the union of them all, so that a `match` can be exhaustive. The first group, the deltas, is what a model
yields; the run passes those on as they are.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .cancellation.cause import Cause
from .interrupts import Interrupt
from .messages import Message, ToolCall, ToolResult, UserMessage
from .receipt import LateOutcome, Receipt
from .usage.ledger import LedgerEntry

# --- Deltas: what a model yields -----------------------------------------------------------------------------------

AnswerStop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause"]


class AnswerStart(Struct, frozen=True, tag="answer_start"):
    """The provider accepted the request. Optional; carries its id."""

    request_id: str | None = None
    model: str | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """More text of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More reasoning. A signature, where there is one, comes with the last piece."""

    text: str
    signature: str | None = None
    provider_data: dict[str, Any] | None = None


class ToolCallStart(Struct, frozen=True, tag="tool_call_start"):
    """The model begins to write a call. Calls may interleave."""

    id: str
    name: str
    provider_data: dict[str, Any] | None = None


class ToolCallArguments(Struct, frozen=True, tag="tool_call_arguments"):
    """More of a call's arguments, as the JSON text that the model writes."""

    id: str
    fragment: str


class ToolCallEnd(Struct, frozen=True, tag="tool_call_end"):
    """A call is completely written. Only such calls are ever run."""

    id: str


class UsageDelta(Struct, frozen=True, tag="usage"):
    """What the provider reports as used by this request *so far*: cumulative, never to be added up.

    A field is None when the provider has not reported it. `input` includes the cache fields, and `output` includes
    `reasoning`. `final` marks figures that will not change.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    final: bool = False


class AnswerEnd(Struct, frozen=True, tag="answer_end"):
    """The answer is complete. A stream that ends without this was torn."""

    reason: AnswerStop = "end_turn"


Delta: TypeAlias = (
    AnswerStart | TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments | ToolCallEnd | UsageDelta | AnswerEnd
)

# --- What the run does ---------------------------------------------------------------------------------------------


class RunStarted(Struct, frozen=True, tag="run_started"):
    """The run holds its conversation; the prompt is in it."""

    run_id: str
    agent: str


class TurnStarted(Struct, frozen=True, tag="turn_started"):
    """A turn begins: one model call and the tools it asks for."""

    turn: int


class ModelCallWaiting(Struct, frozen=True, tag="model_call_waiting"):
    """A request is not sent yet: middleware waits for something, such as a rate limit. `reason` says for what."""

    turn: int
    model: str
    reason: str


class ModelCallStarted(Struct, frozen=True, tag="model_call_started"):
    """A request is about to be sent."""

    turn: int
    attempt: int
    model: str


class ModelCallEnded(Struct, frozen=True, tag="model_call_ended"):
    """A request has ended, with the ledger's entry for it."""

    entry: LedgerEntry


class RetryScheduled(Struct, frozen=True, tag="retry_scheduled"):
    """A model call failed and will be tried again after `delay` seconds."""

    attempt: int
    delay: float
    error: str


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    """A tool begins to run."""

    call: ToolCall


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    """A running tool reports."""

    call_id: str
    name: str
    progress: Any


class ToolEnded(Struct, frozen=True, tag="tool_ended"):
    """A call has its result, whether or not the tool ran."""

    result: ToolResult


class InterruptRaised(Struct, frozen=True, tag="interrupt_raised"):
    """A call waits for a person. The run goes on with the other calls of the turn, and then ends."""

    interrupt: Interrupt


class MessageAdded(Struct, frozen=True, tag="message_added"):
    """A message is in the conversation now."""

    message: Message


class OutputRejected(Struct, frozen=True, tag="output_rejected"):
    """The answer did not fit `output_type`; the model is asked again."""

    error: str
    retry: int


class HookFailed(Struct, frozen=True, tag="hook_failed"):
    """A hook raised. The run goes on."""

    hook: str
    event: str
    error: str


class StopRequested(Struct, frozen=True, tag="stop_requested"):
    """The run has seen a request to stop and begins to settle. It is not at rest yet."""

    cause: Cause
    waiting_for: tuple[str, ...] = ()


class Steered(Struct, frozen=True, tag="steered"):
    """The current work of the run was cut, and `message` is sent instead. The run goes on."""

    message: UserMessage


class RunPaused(Struct, frozen=True, tag="run_paused"):
    """The run waits before its next step, until `run.resume()` or a stop."""


class RunResumed(Struct, frozen=True, tag="run_resumed"):
    """The run goes on after a pause."""


class ChildEvent(Struct, frozen=True, tag="child"):
    """An event of a run that a tool call of this run started."""

    call_id: str
    run_id: str
    event: Event


class HandedOff(Struct, frozen=True, tag="handed_off"):
    """Another agent continues the conversation, in the same run."""

    previous: str
    agent: str


class LateOutcomeRecorded(Struct, frozen=True, tag="late_outcome"):
    """An abandoned call has ended while the run was still going on."""

    outcome: LateOutcome


class ContextReduced(Struct, frozen=True, tag="context_reduced"):
    """The conversation is longer than the agent's `context` allows: `left_out` of its messages are not sent.

    `summarised` says that a summary stands in their place. The conversation itself keeps them.
    """

    left_out: int
    summarised: bool = False


class SessionRecovered(Struct, frozen=True, tag="session_recovered"):
    """The last run of the session, in any process, has crashed. Its torn turn was sealed.

    `unknown` are the tool calls of which it is not known whether they ran.
    """

    run_id: str
    unknown: tuple[ToolCall, ...] = ()


class StoreFailed(Struct, frozen=True, tag="store_failed"):
    """The session can no longer be saved; the run goes on in memory (`on_store_failure="continue"`)."""

    error: str


class EventsDropped(Struct, frozen=True, tag="events_dropped"):
    """The first event of a reader that came too late for the `count` oldest events: the run no longer has them."""

    count: int


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The run is at rest. Exactly one of these, always the last."""

    stop_reason: str
    receipt: Receipt
    error: str | None = None
    error_type: str | None = None


Event: TypeAlias = (
    Delta
    | RunStarted
    | TurnStarted
    | ModelCallWaiting
    | ModelCallStarted
    | ModelCallEnded
    | RetryScheduled
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | InterruptRaised
    | MessageAdded
    | OutputRejected
    | HookFailed
    | StopRequested
    | Steered
    | RunPaused
    | RunResumed
    | ChildEvent
    | HandedOff
    | LateOutcomeRecorded
    | ContextReduced
    | SessionRecovered
    | StoreFailed
    | EventsDropped
    | RunEnded
)
