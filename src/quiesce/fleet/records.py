"""The values of a fleet: a run in the queue or on a worker, a command for it, and a worker."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from .._exact import NotJSON, exact
from .._threads.seconds import checked_seconds
from ..cancellation import Mode
from ..errors import ConfigurationError
from ..messages import UserMessage
from ..receipt import Receipt

# queued    in the queue; a stop ends it there
# running   a worker has it
# ended     at rest, and `detail` is its receipt
# crashed   its worker was lost: the conversation is sealed, and the run does not go on
FleetRunStatus: TypeAlias = Literal["queued", "running", "ended", "crashed"]
ACTIVE = ("queued", "running")

# What becomes of the runs of a lost worker: another run goes on with the conversation, or it is only sealed.
OnWorkerLoss: TypeAlias = Literal["continue", "seal"]

# What a run begins with: a prompt, the answers to an interrupt, or nothing, to go on with the last answer.
GivenKind: TypeAlias = Literal["prompt", "answer", "continue"]

CommandKind: TypeAlias = Literal["stop", "steer", "cancel_tool", "answer", "pause", "unpause"]


class RunRequest(Struct, frozen=True):
    """A run that is to be queued.

    owner             who the run is for
    agent             the name of the agent
    session           the name of the session in the store
    label             the name of the session as its owner calls it
    given             what the run begins with, as JSON
    timeout           seconds that the run may take, from the moment when a worker starts it
    on_worker_loss    what becomes of the run when its worker is lost
    idempotency_key   a request that is repeated with the same key finds the run that the first one queued
    version           only workers with this version of the agent take the run; empty for any
    """

    owner: str
    agent: str
    session: str
    kind: GivenKind
    given: bytes = b"null"
    label: str | None = None
    timeout: float | None = None
    on_worker_loss: OnWorkerLoss = "continue"
    continued_from: str = ""
    losses: int = 0
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    version: str = ""


class FleetRun(Struct, frozen=True):
    """A run as the store has it.

    attempt          how often a worker has taken it; a worker whose attempt is older has lost it
    continued_from   the run whose conversation this one goes on with, after its worker was lost or drained
    restarted_as     the run that goes on with this one's conversation
    losses           how many workers were lost with this run and those that it continues
    stop             the mode of the most urgent stop that was asked for; empty without one
    version          the version of the agent that the run was started with; empty before that
    reserved_tokens  what the run may use of the caps of the day, and reserved_cost; None where there is no cap
    """

    id: str
    owner: str
    agent: str
    session: str
    label: str | None
    kind: GivenKind
    given: bytes
    timeout: float | None
    state: FleetRunStatus
    created: float
    started: float | None
    ended: float | None
    job: int
    worker: str
    attempt: int
    reason: str
    detail: bytes
    on_worker_loss: OnWorkerLoss
    continued_from: str
    restarted_as: str
    losses: int
    fingerprint: bytes
    stop: str
    reserved_tokens: int | None
    reserved_cost: Decimal | None
    version: str

    @property
    def is_active(self) -> bool:
        """Whether the run is in the queue or on a worker."""
        return self.state in ACTIVE

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the run is at rest."""
        return msgspec.json.decode(self.detail, type=Receipt | None)

    @property
    def prompt(self) -> UserMessage | None:
        """The prompt, of a run that begins with one."""
        return msgspec.json.decode(self.given, type=UserMessage) if self.kind == "prompt" else None

    @property
    def headers(self) -> dict[str, str]:
        """Empty: the headers of the request are not stored. For functions that make deps."""
        return {}


def check_limits(capacity: object, drain: float, **intervals: float) -> None:
    """Raises `ConfigurationError` for limits with which a worker cannot work."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 0 < capacity < 1 << 31:
        raise ConfigurationError(f"capacity={capacity!r} is not valid.", todo="Use a whole number from 1 up.")
    checked_seconds("drain", drain)
    for name, seconds in intervals.items():
        checked_seconds(name, seconds, least=0.001)


COLUMNS = FleetRun.__struct_fields__


def fleet_run(row: Any) -> FleetRun:
    """A row of the table of runs."""
    return FleetRun(*(row[name] for name in COLUMNS))


class Command(Struct, frozen=True):
    """Something that is asked of a run, as it is stored; `age` is how many seconds ago."""

    id: int
    run: str
    kind: CommandKind
    body: bytes
    age: float


class StopBody(Struct, frozen=True):
    """The body of a stop."""

    reason: str = ""
    mode: Mode = Mode.NOW
    source: Literal["user", "remote", "shutdown", "disconnect"] = "user"
    undo: bool | None = None


def stop_body(**given: Any) -> StopBody:
    """A stop that workers can read. Raises `ConfigurationError` for an unknown mode or source, or half a character."""
    try:
        return exact(given, StopBody)
    except NotJSON as error:
        raise ConfigurationError(f"This is not a valid stop: {error}.") from None


class StopState(Struct, frozen=True):
    """How far a command has come: what is true, and no more.

    accepted    it is in the store, and will be honoured even if the run's worker is lost
    delivered   the worker that has the run has given it to the run
    at_rest     the run has ended
    took        whether it changed anything, as far as the worker has said
    """

    run: FleetRun
    accepted: bool
    delivered: bool = False
    took: bool = False
    command: int = 0

    @property
    def at_rest(self) -> bool:
        """Whether the run has ended."""
        return not self.run.is_active


class WorkerInfo(Struct, frozen=True):
    """A worker, as `quiesce workers` lists it. `age` is the time since its last heartbeat, in seconds.

    `versions` has the versions of its agents, as `name@version`.
    """

    id: str
    host: str
    pid: int
    agents: tuple[str, ...]
    capacity: int
    running: int
    started: float
    age: float
    lease: float
    draining: bool
    versions: tuple[str, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether its heartbeat is overdue."""
        return self.age > self.lease

    @property
    def status(self) -> Literal["up", "draining", "lost"]:
        """What it is doing."""
        return "lost" if self.is_lost else "draining" if self.draining else "up"
