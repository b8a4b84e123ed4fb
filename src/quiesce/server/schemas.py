"""The JSON of requests and responses."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from ..cancellation import Cause, Mode
from ..interrupts import Interrupt
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


class Answer(Struct, forbid_unknown_fields=True):
    """The answer to one interrupt.

    For an approval: true, false, `{"type": "approve"}` (with `arguments` to call the tool with others) or
    `{"type": "deny", "reason": ...}`. For a question: any value.
    """

    id: str
    answer: Any


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
    """Whether the request changed anything."""

    accepted: bool


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
    """The usage of one model on one day (UTC)."""

    day: str
    model: str
    usage: UsageView


class UsageReport(Struct, frozen=True):
    """The usage of all runs of a key."""

    total: UsageView
    days: tuple[DayUsage, ...]


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

    status: Literal["ok", "draining"]
    runs: int
    version: str


def usage_view(usage: Usage) -> UsageView:
    """Usage without its entries."""
    return UsageView(calls=usage.calls, **structs.asdict(usage.tokens), cost=usage.cost, is_final=usage.is_final)
