"""What happened: one frozen, typed event for each thing that a run does.

`Event` is the union of them all, so that a `match` can be exhaustive. The first group, the deltas, is what a model
yields; the run passes those on as they are.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from .cancellation.cause import Cause
from .interrupts import AnswerRecord, Interrupt
from .messages import Message, ToolCall, ToolResult, UserMessage
from .receipt import LateOutcome, ReadableStopReason, Receipt
from .usage.figure import Provenance
from .usage.ledger import LedgerEntry

# --- Deltas: what a model yields -----------------------------------------------------------------------------------

AnswerStop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause"]


class AnswerStart(Struct, frozen=True, tag="answer_start"):
    """The provider accepted the request. Optional; carries its id."""

    type: ClassVar[Literal["answer_start"]] = "answer_start"
    request_id: str | None = None
    model: str | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """More text of the answer."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More reasoning. A signature, where there is one, comes with the last piece."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    signature: str | None = None
    provider_data: dict[str, Any] | None = None


class ToolCallStart(Struct, frozen=True, tag="tool_call_start"):
    """The model begins to write a call. Calls may interleave."""

    type: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    id: str
    name: str
    provider_data: dict[str, Any] | None = None


class ToolCallArguments(Struct, frozen=True, tag="tool_call_arguments"):
    """More of a call's arguments, as the JSON text that the model writes."""

    type: ClassVar[Literal["tool_call_arguments"]] = "tool_call_arguments"
    id: str
    fragment: str


class ToolCallEnd(Struct, frozen=True, tag="tool_call_end"):
    """A call is completely written. Only such calls are ever run."""

    type: ClassVar[Literal["tool_call_end"]] = "tool_call_end"
    id: str


class ProviderPartDelta(Struct, frozen=True, tag="provider_part"):
    """A whole part of the answer that only this provider has: `messages.ProviderPart`."""

    type: ClassVar[Literal["provider_part"]] = "provider_part"
    provider: str
    kind: str
    data: dict[str, Any]


class UsageDelta(Struct, frozen=True, tag="usage"):
    """What the provider reports as used by this request *so far*: cumulative, never to be added up.

    A field is None when the provider has not reported it. `input` includes the cache fields, and `output` includes
    `reasoning`. `final` marks figures that will not change. `server_tools` says that the provider has run tools of its
    own: each makes it read the conversation again, so that `input` is more than what was sent, and grows until the end.
    """

    type: ClassVar[Literal["usage"]] = "usage"
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    final: bool = False
    server_tools: bool = False


class AnswerEnd(Struct, frozen=True, tag="answer_end"):
    """The answer is complete. A stream that ends without this was torn.

    `detail` is what the provider says about a refusal, or about an answer that has no content.
    """

    type: ClassVar[Literal["answer_end"]] = "answer_end"
    reason: AnswerStop = "end_turn"
    detail: str = ""


Delta: TypeAlias = (
    AnswerStart
    | TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallArguments
    | ToolCallEnd
    | ProviderPartDelta
    | UsageDelta
    | AnswerEnd
)

# --- What the run does ---------------------------------------------------------------------------------------------


class RunStarted(Struct, frozen=True, tag="run_started"):
    """The run holds its conversation; the prompt is in it. `task` is the first run that the same prompt led to."""

    type: ClassVar[Literal["run_started"]] = "run_started"
    run_id: str
    agent: str
    task: str = ""


class TurnStarted(Struct, frozen=True, tag="turn_started"):
    """A turn begins: one model call and the tools it asks for."""

    type: ClassVar[Literal["turn_started"]] = "turn_started"
    turn: int


class ModelCallWaiting(Struct, frozen=True, tag="model_call_waiting"):
    """A request is not sent yet: middleware waits for something, such as a rate limit. `reason` says for what."""

    turn: int
    model: str
    reason: str


class ModelCallStarted(Struct, frozen=True, tag="model_call_started"):
    """A request is about to be sent."""

    type: ClassVar[Literal["model_call_started"]] = "model_call_started"
    turn: int
    attempt: int
    model: str


class ModelCallEnded(Struct, frozen=True, tag="model_call_ended"):
    """A request has ended, with the ledger's entry for it."""

    type: ClassVar[Literal["model_call_ended"]] = "model_call_ended"
    entry: LedgerEntry


class RetryScheduled(Struct, frozen=True, tag="retry_scheduled"):
    """A model call failed and will be tried again after `delay` seconds."""

    type: ClassVar[Literal["retry_scheduled"]] = "retry_scheduled"
    attempt: int
    delay: float
    error: str


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    """A tool is about to run; its first line may not have run yet."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    call: ToolCall


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    """A running tool reports."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    call_id: str
    name: str
    progress: Any


class ToolEnded(Struct, frozen=True, tag="tool_ended"):
    """A call has its result, whether or not the tool ran."""

    type: ClassVar[Literal["tool_ended"]] = "tool_ended"
    result: ToolResult


class InterruptRaised(Struct, frozen=True, tag="interrupt_raised"):
    """A call waits for a person. The run goes on with the other calls of the turn, and then ends."""

    type: ClassVar[Literal["interrupt_raised"]] = "interrupt_raised"
    interrupt: Interrupt


class InterruptAnswered(Struct, frozen=True, tag="interrupt_answered"):
    """An interrupt has its answer, from a person or from an approval that was given in advance."""

    type: ClassVar[Literal["interrupt_answered"]] = "interrupt_answered"
    record: AnswerRecord


class MessageAdded(Struct, frozen=True, tag="message_added"):
    """A message is in the conversation now."""

    type: ClassVar[Literal["message_added"]] = "message_added"
    message: Message


class OutputRejected(Struct, frozen=True, tag="output_rejected"):
    """The answer did not fit `output_type`; the model is asked again."""

    type: ClassVar[Literal["output_rejected"]] = "output_rejected"
    error: str
    retry: int


class HookFailed(Struct, frozen=True, tag="hook_failed"):
    """A hook raised. The run goes on."""

    type: ClassVar[Literal["hook_failed"]] = "hook_failed"
    hook: str
    event: str
    error: str


class StopRequested(Struct, frozen=True, tag="stop_requested"):
    """The run has seen a request to stop and begins to settle. It is not at rest yet."""

    type: ClassVar[Literal["stop_requested"]] = "stop_requested"
    cause: Cause
    waiting_for: tuple[str, ...] = ()


class Steered(Struct, frozen=True, tag="steered"):
    """The current work of the run was cut, and `message` is sent instead. The run goes on."""

    type: ClassVar[Literal["steered"]] = "steered"
    message: UserMessage


class RunPaused(Struct, frozen=True, tag="run_paused"):
    """The run waits before its next step, until `run.resume()` or a stop."""

    type: ClassVar[Literal["run_paused"]] = "run_paused"


class RunResumed(Struct, frozen=True, tag="run_resumed"):
    """The run goes on after a pause."""

    type: ClassVar[Literal["run_resumed"]] = "run_resumed"


class ChildEvent(Struct, frozen=True, tag="child"):
    """An event of a run that a tool call of this run started."""

    type: ClassVar[Literal["child"]] = "child"
    call_id: str
    run_id: str
    event: Event


class HandedOff(Struct, frozen=True, tag="handed_off"):
    """Another agent continues the conversation, in the same run."""

    type: ClassVar[Literal["handed_off"]] = "handed_off"
    previous: str
    agent: str


class LateOutcomeRecorded(Struct, frozen=True, tag="late_outcome"):
    """An abandoned call has ended while the run was still going on."""

    type: ClassVar[Literal["late_outcome"]] = "late_outcome"
    outcome: LateOutcome


class ContextReduced(Struct, frozen=True, tag="context_reduced"):
    """The conversation is longer than the agent's `context` allows: `left_out` of its messages are not sent.

    `summarised` says that a summary stands in their place. The conversation itself keeps them. `tokens_before` and
    `tokens_after` are estimates of all messages and of those that are sent, without instructions and tools; `source`
    says what the estimates come from.
    """

    type: ClassVar[Literal["context_reduced"]] = "context_reduced"
    left_out: int
    summarised: bool = False
    tokens_before: int | None = None
    tokens_after: int | None = None
    source: Provenance | None = None


class SessionRecovered(Struct, frozen=True, tag="session_recovered"):
    """The last run of the session, in any process, has crashed. Its torn turn was sealed.

    `unknown` are the tool calls of which it is not known whether they ran.
    """

    type: ClassVar[Literal["session_recovered"]] = "session_recovered"
    run_id: str
    unknown: tuple[ToolCall, ...] = ()


class StoreFailed(Struct, frozen=True, tag="store_failed"):
    """The session can no longer be saved; the run goes on in memory (`on_store_failure="continue"`)."""

    type: ClassVar[Literal["store_failed"]] = "store_failed"
    error: str


class EventsDropped(Struct, frozen=True, tag="events_dropped"):
    """The first event of a reader that came too late for the `count` oldest events: the run no longer has them."""

    count: int


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The run is at rest. Exactly one of these, always the last."""

    type: ClassVar[Literal["run_ended"]] = "run_ended"
    stop_reason: ReadableStopReason
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
    | InterruptAnswered
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
