"""The values that go between client, workflow and activities. Temporal stores them, as JSON."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from ...cancellation import Cause
from ...conversation.conversation import ConversationState
from ...conversation.sealing import DEFAULT_CUT_NOTE
from ...interrupts import Interrupt
from ...messages import AssistantMessage, Message, UserMessage
from ...receipt import Receipt
from ...usage.ledger import LedgerEntry
from ..records import OnWorkerLoss

WORKFLOW: Final = "quiesce_run"
MODEL_CALL: Final = "quiesce_model_call"
TOOL_CALL: Final = "quiesce_tool_call"
STOP: Final = "quiesce_stop"
ANSWER: Final = "quiesce_answer"
MORE_URGENT: Final = "quiesce_more_urgent"
NOT_BEGUN: Final = "quiesce_not_begun"

# running   the workflow is under way, or waits for a worker
# ended     at rest, with its receipt
# crashed   lost with too many workers, or ended by Temporal (terminated, timed out, failed)
TemporalRunState: TypeAlias = Literal["running", "ended", "crashed"]

_T = TypeVar("_T")


def plain(value: Struct) -> dict[str, Any]:
    """A value as JSON has it: any data converter of Temporal can encode it."""
    return msgspec.to_builtins(value)


def read(value: Any, kind: type[_T]) -> _T:
    """A value that `plain` has made."""
    return msgspec.convert(value, kind)


def activity_queue(queue: str, agent: str) -> str:
    """The task queue of the activities of an agent. The workflows of all agents share `queue`."""
    return f"{queue}/{agent}"


class RunInfo(Struct, frozen=True):
    """A run as its activities know it: its id, the name of its agent, and who it is for."""

    id: str
    agent: str
    owner: str = ""


class WorkflowInput(Struct, frozen=True):
    """What a workflow is started with.

    messages         the conversation before the prompt
    timeout          seconds that the steps of the run may take together
    on_worker_loss   what becomes of the run when the worker of one of its activities is lost
    lease            seconds without a heartbeat after which a worker counts as lost
    queue            the task queue of the workflow
    """

    agent: str
    prompt: UserMessage
    queue: str
    messages: tuple[Message, ...] = ()
    owner: str = ""
    timeout: float | None = None
    on_worker_loss: OnWorkerLoss = "continue"
    lease: float = 15.0


class StepInput(Struct, frozen=True):
    """What an activity is started with: the conversation so far, and what is next.

    A model call has the prompt of the run when it is the first one. A tool call has the id of the call, and the answers
    of a person to what it has asked; the conversation has the turn that the call belongs to as `pending`.
    """

    run: RunInfo
    conversation: ConversationState
    prompt: UserMessage | None = None
    call_id: str = ""
    answers: dict[str, Any] = {}
    timeout: float | None = None


class PlannedCall(Struct, frozen=True):
    """What the workflow must know about a call: whether it may run twice, and the positions of those it waits for."""

    idempotent: bool = False
    after: tuple[int, ...] = ()


class StepResult(Struct, frozen=True):
    """What an activity has done, cancelled or not.

    receipt        of the run of one step that the activity was
    conversation   as the step has left it, with its turn pending; sealed where the step was stopped
    plan           for the calls of the pending turn, in their order
    error          the failure of the run, if it failed
    """

    receipt: Receipt
    conversation: ConversationState
    plan: tuple[PlannedCall, ...] = ()
    cut_note: str = DEFAULT_CUT_NOTE
    error: str = ""


class HeartbeatDetails(Struct, frozen=True):
    """What is kept of an activity whose worker is lost: the requests that it has sent.

    Temporal has the first one before the step begins. An activity that is lost without one has done nothing.
    """

    entries: tuple[LedgerEntry, ...] = ()


class TemporalRun(Struct, frozen=True):
    """A run as Temporal has it.

    reason       how it ended, as on its receipt; of a workflow that Temporal has ended, the status of the workflow
    stop         the mode of the most urgent stop that the workflow has seen; empty without one
    interrupts   what a person is asked, while it runs; `TemporalFleet.answer` answers
    messages     the conversation, always valid: that before the run, and what the run has added
    before       how many messages the conversation had before the run
    """

    id: str
    agent: str = ""
    owner: str = ""
    state: TemporalRunState = "running"
    reason: str = ""
    error: str = ""
    stop: str = ""
    interrupts: tuple[Interrupt, ...] = ()
    messages: tuple[Message, ...] = ()
    before: int = 0
    receipt: Receipt | None = None

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return self.state == "running"

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """What the run has added to the conversation."""
        return self.messages[self.before :]

    @property
    def text(self) -> str:
        """The text of the last answer, cut or not."""
        texts = (each.text for each in reversed(self.new_messages) if isinstance(each, AssistantMessage))
        return next(filter(None, texts), "")


class StopRequest(Struct, frozen=True):
    """A stop, as the signal to the workflow has it."""

    cause: Cause


class TemporalStopState(Struct, frozen=True):
    """How far a stop has come: what is true, and no more.

    accepted    Temporal has stored it, and it will be honoured even if the worker is lost
    delivered   the workflow has it, and has cancelled the activities that it is to cut
    at_rest     the run has ended
    """

    run: TemporalRun
    accepted: bool
    delivered: bool = False

    @property
    def at_rest(self) -> bool:
        """Whether the run has ended."""
        return not self.run.is_active


# Workflows run in threads. msgspec prepares a type when it is first used, and crashes when two threads do so at once.
for _kind in (WorkflowInput, StepInput, StepResult, HeartbeatDetails, TemporalRun, StopRequest):
    msgspec.json.Decoder(_kind)
