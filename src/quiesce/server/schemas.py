"""The JSON of requests and responses."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from ..cancellation import Cause, Mode
from ..interrupts import AnswerRecord, Interrupt
from ..messages import Message, UserContent
from ..phases import Phase
from ..receipt import Receipt
from ..usage.figure import Figure
from ..usage.ledger import Usage
from ..usage.prices import Cost
from .settings import OnDisconnect

RunStatus: TypeAlias = Literal["queued", "running", "stopping", "ended", "crashed"]

SESSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
SessionName: TypeAlias = Annotated[str, Meta(pattern=SESSION_PATTERN)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=7 * 24 * 3600)]
Reason: TypeAlias = Annotated[str, Meta(max_length=1000)]

# --- Requests ---------------------------------------------------------------------------------------------


class StartRun(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs`. `mode` is how the run is stopped when it has no reader."""

    prompt: Annotated[str, Meta(min_length=1)] | Annotated[list[UserContent], Meta(min_length=1)]
    agent: str | None = None
    session: SessionName | None = None
    timeout: Seconds | None = None
    on_disconnect: OnDisconnect | None = None
    disconnect_grace: Seconds | None = None
    mode: Mode = Mode.NOW
    on_busy: Literal["refuse", "queue"] = "refuse"


class CancelRun(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs/{id}/cancel`.

    `undo` undoes the run's completed calls before the run ends; false withdraws that.
    """

    reason: Reason = ""
    mode: Mode = Mode.NOW
    undo: bool | None = None
    source: Literal["user", "remote"] = "user"


class CancelTool(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs/{id}/tools/{call}/cancel`."""

    reason: Reason = ""


class SteerRun(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs/{id}/steer`."""

    text: Annotated[str, Meta(min_length=1)]


class PauseRun(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs/{id}/pause`."""

    paused: Annotated[bool, Meta(description="Whether the run waits before its next step; false lets it go on.")] = True


class ArgumentPattern(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one argument of a call must be: exactly `equals`, or a text like `like`."""

    equals: Annotated[Any, Meta(description="The argument has exactly this value.")] = UNSET
    like: Annotated[
        str | UnsetType,
        Meta(description="The argument is a text of this form; `*` stands for any characters within a line."),
    ] = UNSET


class Remember(Struct, forbid_unknown_fields=True):
    """How an approval counts for later calls of the same tool too, without asking."""

    scope: Annotated[
        Literal["session", "agent"],
        Meta(description="For this session, or for all sessions of this key with the agent; these need an end."),
    ] = "session"
    arguments: Annotated[
        dict[str, ArgumentPattern],
        Meta(description="Only for calls with such arguments. An argument that is not named may have any value."),
    ] = {}
    expires_in: Annotated[
        Annotated[float, Meta(ge=1, le=7 * 24 * 3600)] | None,
        Meta(description="Seconds until the approval ends. Without it, it lasts as long as the session."),
    ] = None


class Answer(Struct, forbid_unknown_fields=True):
    """The answer to one interrupt.

    For an approval: true, false, `{"type": "approve"}` (with `arguments` to call the tool with others) or
    `{"type": "deny", "reason": ...}`. For a question: any value.
    """

    id: str
    answer: Any
    remember: Annotated[
        Remember | None, Meta(description="With an approval: it counts for later calls too. See `GET /approvals`.")
    ] = None


class ResumeRun(Struct, forbid_unknown_fields=True):
    """The body of `POST /runs/{id}/resume`."""

    answers: list[Answer]


class Nothing(Struct, forbid_unknown_fields=True):
    """A body that may be left out, or `{}`."""


# --- Responses ----------------------------------------------------------------------------------------


class UsageView(Struct, frozen=True):
    """Usage: each figure with its interval and its source."""

    calls: int
    input: Figure
    output: Figure
    cache_read: Figure
    cache_write: Figure
    reasoning: Figure
    cost: Cost | None
    is_final: bool


class RunView(Struct, frozen=True):
    """A summary of a run. `mode` and `cause` are those of its stop, if there was one.

    `task` is the first run that the same prompt led to: runs that go on after an answer have the same. `undoable` names
    the tools whose calls `POST /runs/{id}/undo` would undo, over all runs of the task. In a fleet, `restarted_as` is
    the run that goes on after this one's worker was lost or shut down, and `continued_from` the run before this one.
    """

    id: str
    agent: str
    session: str | None
    state: RunStatus
    phase: Phase
    stop_reason: str | None
    prompt: str
    created_at: float
    ended_at: float | None
    mode: Mode | None
    cause: Cause | None
    waiting_for: tuple[str, ...]
    interrupts: tuple[Interrupt, ...]
    usage: UsageView
    text_tail: str
    error: str | None = None
    on_disconnect: OnDisconnect = "continue"
    last_event: int = 0
    undoable: tuple[str, ...] = ()
    task: str = ""
    continued_from: str = ""
    restarted_as: str = ""
    answers: Annotated[
        tuple[AnswerRecord, ...],
        Meta(description="Who has answered the approvals and questions that this run went on with, and how."),
    ] = ()
    paused: Annotated[
        bool, Meta(description="Whether the run waits, or will wait, before its next step. Not known in a fleet.")
    ] = False


class StandingApproval(Struct, frozen=True):
    """An approval that was given in advance. `DELETE /approvals/{id}` takes it back, and so does a later no."""

    id: Annotated[str, Meta(description="The id of the approval; the record of each call that it approved has it.")]
    agent: Annotated[str, Meta(description="The agent whose tool it is.")]
    tool: Annotated[str, Meta(description="The tool.")]
    session: Annotated[str | None, Meta(description="The session that it is for; null for all.")]
    arguments: Annotated[dict[str, ArgumentPattern], Meta(description="What the arguments must be like.")]
    by: Annotated[str, Meta(description="The key that gave it.")]
    created_at: Annotated[float, Meta(description="When it was given, in seconds since the epoch.")]
    expires_at: Annotated[float | None, Meta(description="When it ends; null when it ends with the session.")]
    definition: Annotated[
        str, Meta(description="The definition of the tool that it was given for. It does not count for another one.")
    ]


class ApprovalList(Struct, frozen=True):
    """The approvals that were given in advance, the newest first."""

    approvals: tuple[StandingApproval, ...]


AuditAction: TypeAlias = Literal[
    "start",
    "stop",
    "stop_tool",
    "steer",
    "pause",
    "unpause",
    "approve",
    "deny",
    "answer",
    "withdraw",
    "continue",
    "undo",
    "delete_run",
    "delete_session",
    "allow",
    "disallow",
]


class AuditEntry(Struct, frozen=True):
    """Something that was done."""

    number: Annotated[int, Meta(description="Counts the entries of this key, from 1.")]
    at: Annotated[float, Meta(description="When, in seconds since the epoch.")]
    who: Annotated[
        str, Meta(description="The key, the approval that was given in advance, or what else has stopped a run.")
    ]
    action: Annotated[
        AuditAction,
        Meta(description="What was done. `allow` and `disallow` are about approvals that are given in advance."),
    ]
    run: Annotated[str, Meta(description="The run that it was done to, or that it started.")]
    session: Annotated[str, Meta(description="The session.")]
    agent: Annotated[str, Meta(description="The agent.")]
    detail: Annotated[
        str, Meta(description="The mode and the reason of a stop, the tool that was approved, and so on.")
    ]


class AuditPage(Struct, frozen=True):
    """Some entries of the audit, the newest first."""

    entries: tuple[AuditEntry, ...]
    next: Annotated[int | None, Meta(description="Give this as `before` to get older ones; null when there are none.")]


class RunAnswer(Struct, frozen=True):
    """A run."""

    run: RunView


class RunDetail(Struct, frozen=True):
    """A run with its conversation, and with its receipt once it has ended."""

    run: RunView
    messages: tuple[Message, ...]
    receipt: Receipt | None


class RunList(Struct, frozen=True):
    """Some runs, the newest first."""

    runs: tuple[RunView, ...]
    next: Annotated[
        str | None, Meta(description="Give this as `before` to get older runs; null when there are none.")
    ] = None


class RunsListed(Struct, frozen=True, tag="list"):
    """The current runs, the newest first. Replaces everything sent before."""

    runs: tuple[RunView, ...]


class RunChanged(Struct, frozen=True, tag="run"):
    """A run that is new or has changed."""

    run: RunView


class RunGone(Struct, frozen=True, tag="gone"):
    """A run that was deleted."""

    id: str


RunsChange: TypeAlias = RunsListed | RunChanged | RunGone


class CancelAnswer(Struct, frozen=True):
    """Whether the request changed anything, and the run; with the receipt once the run has ended.

    `delivered` is false while the stop is stored, and the run's worker has not said that the run has it.
    """

    accepted: bool
    run: RunView
    receipt: Receipt | None = None
    delivered: bool = True


class Accepted(Struct, frozen=True):
    """Whether the request changed anything. In a fleet it may be stored, and the run's worker not have it yet."""

    accepted: bool
    delivered: bool = True


class ReceiptAnswer(Struct, frozen=True):
    """A receipt; `is_done` when the undo is complete."""

    receipt: Receipt
    is_done: bool = True


class SessionView(Struct, frozen=True):
    """A summary of a session. `run` is the id of the run that uses it."""

    name: str
    agent: str
    messages: int
    updated_at: float
    run: str | None


class SessionList(Struct, frozen=True):
    """Some sessions, the last used first."""

    sessions: tuple[SessionView, ...]


class SessionDetail(Struct, frozen=True):
    """A session with its conversation and its runs."""

    session: SessionView
    messages: tuple[Message, ...]
    runs: tuple[RunView, ...]


class DayUsage(Struct, frozen=True):
    """The usage of one model by one agent on one day (UTC)."""

    day: str
    model: str
    usage: UsageView
    agent: Annotated[str, Meta(description="The agent whose runs these were; empty when that is no longer known.")] = ""


class SessionUsage(Struct, frozen=True):
    """The usage of one session with one agent."""

    session: Annotated[str, Meta(description="The name of the session.")]
    agent: Annotated[str, Meta(description="The agent.")]
    runs: Annotated[int, Meta(description="How many runs it is the sum of.")]
    last_used: Annotated[float, Meta(description="When the last of them was started, in seconds since the epoch.")]
    usage: UsageView


class UsageReport(Struct, frozen=True):
    """The usage of all runs of a key."""

    total: UsageView
    days: tuple[DayUsage, ...]
    sessions: Annotated[
        tuple[SessionUsage, ...],
        Meta(description="By session, the last used first, 200 at most. Only of runs that the server has in memory."),
    ] = ()
    keys: Annotated[
        tuple[str, ...],
        Meta(description="For an operator: the keys of which GET /usage/keys has the usage. Otherwise empty."),
    ] = ()


class KeyUsage(Struct, frozen=True):
    """The usage of one key."""

    key: Annotated[str, Meta(description="The name of the key.")]
    last_day: Annotated[str, Meta(description="The last day (UTC) on which it used something; empty without one.")]
    usage: UsageView


class UsageByKey(Struct, frozen=True):
    """The usage of all keys, or of one, for an operator: figures, and no text of prompts and answers."""

    total: UsageView
    keys: Annotated[tuple[KeyUsage, ...], Meta(description="By key, the highest cost first.")]
    days: Annotated[tuple[DayUsage, ...], Meta(description="The keys together by day, model and agent.")]


class ToolView(Struct, frozen=True):
    """A tool of an agent and its stop policy."""

    name: str
    description: str
    on_stop: str
    grace: float


class AgentView(Struct, frozen=True):
    """An agent that runs can be started with."""

    name: str
    model: str
    tools: tuple[ToolView, ...]


class AgentList(Struct, frozen=True):
    """The agents of this server; the first is the default."""

    agents: tuple[AgentView, ...]


class WorkerView(Struct, frozen=True):
    """A worker of a fleet. `heartbeat_age` is the time since its last heartbeat, in seconds."""

    id: str
    state: Literal["up", "draining", "lost"]
    agents: tuple[str, ...]
    running: int
    capacity: int
    started_at: float
    heartbeat_age: float


class QueueView(Struct, frozen=True):
    """How many runs of an agent, of all keys, wait for a worker, and how many are on one."""

    agent: str
    queued: int
    running: int


class FreezeView(Struct, frozen=True):
    """A freeze of an agent, or of all when `agent` is empty. It holds until `released_at`."""

    agent: str
    reason: str
    frozen_by: str
    frozen_at: float
    released_at: float | None
    released_by: str
    release_reason: str


class CapFigures(Struct, frozen=True):
    """Runs that have not ended, and tokens and money of today (UTC). None where there is no cap."""

    runs: int | None
    tokens: int | None
    cost: Decimal | None


class CapView(Struct, frozen=True):
    """A cap that runs of this key count for: of one agent, or of all when `agent` is empty.

    `shared` says that the runs of all keys count. The figures of the day begin again in `resets_in` seconds.
    """

    agent: str
    shared: bool
    allowed: CapFigures
    used: CapFigures
    resets_in: float


class FleetView(Struct, frozen=True):
    """A fleet; the freezes that hold come first, then the latest on record."""

    workers: tuple[WorkerView, ...]
    queues: tuple[QueueView, ...]
    caps: tuple[CapView, ...]
    freezes: tuple[FreezeView, ...]


class Health(Struct, frozen=True):
    """Whether the server accepts new runs."""

    status: Literal["ok", "draining", "store_unavailable"]
    runs: int
    version: str
    fleet: Annotated[bool, Meta(description="Whether runs are executed by workers: `GET /fleet` shows them.")] = False


def usage_view(usage: Usage) -> UsageView:
    """Usage without its entries."""
    return UsageView(calls=usage.calls, **structs.asdict(usage.tokens), cost=usage.cost, is_final=usage.is_final)
