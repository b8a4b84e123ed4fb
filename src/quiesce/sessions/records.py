"""What a store holds, as plain values: stores move bytes and need not know what a message is."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from ..events import RunEnded
from ..messages import Message
from .journal.rows import JournalRow, Row, encode, pack

RunStatus: TypeAlias = Literal["running", "ended", "crashed"]

# --- Who writes ----------------------------------------------------------------------------------------------------


class Holder(Struct, frozen=True):
    """Who holds a session: enough to name them in an error, and to see that they are dead.

    `process` identifies one process on one machine since its last start, or is empty where that cannot be told.
    """

    owner: str
    host: str
    pid: int
    process: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended. False when that cannot be told from here."""
        here = _process_space()
        if not self.process or not here or not self.process.startswith(f"{here}/"):
            return False
        return self.process != f"{here}/{self.pid}/{_started_at(self.pid)}"


def holder(owner: str) -> Holder:
    """This process, as the holder of a session."""
    pid, space = os.getpid(), _process_space()
    return Holder(owner, socket.gethostname(), pid, f"{space}/{pid}/{_started_at(pid)}" if space else "")


def _process_space() -> str:
    """What must be the same for two processes to see each other: the boot and the pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started_at(pid: int) -> str:
    """When a process started, by the kernel's clock; empty when there is none, or it has ended and is a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state[0] in "ZX" else state[19]


class Lease(Struct, frozen=True):
    """The right to write a session until `expires`. A newer lease has a higher `fence`; then this one is worth nothing.

    `revision` is the session's when the lease was taken: it changes with every write.
    """

    session: str
    session_id: str
    fence: int
    revision: int
    seconds: float
    owner: str
    since: int = 0
    """The last place in the line when the lease was taken: who is behind it came later."""


# --- What is written -----------------------------------------------------------------------------------------------


class RunBegin(Struct, frozen=True):
    """A run writes to the session for the first time."""

    agent: str
    started: float


class RunEnd(Struct, frozen=True):
    """How a run ended; `detail` is its receipt, or after a crash what is known of it, as JSON."""

    status: RunStatus
    reason: str
    ended: float
    detail: bytes = b"null"


class WriteBatch:
    """What goes into the store in one transaction, or not at all.

    Rows are numbered by run, and messages by session, so that a batch that is written twice is there once.
    """

    def __init__(self, run_id: str, *, first_row: int = 0, first_event: int | None = None) -> None:
        self.run_id: Final = run_id
        self.first_row: Final = first_row
        self.first_event: Final = first_event
        """The number of the first event among the entries; None when events are not counted."""
        self.entries: list[JournalRow] = []
        self.closing: RunEnded | None = None
        """The run's last event, which is in the store before it is told."""
        self.messages: list[Message] = []
        self.first_message = 0
        self.cuts = False
        """Whether messages from `first_message` on go, even if none take their place."""
        self.begin: RunBegin | None = None
        self.end: RunEnd | None = None
        self.values: dict[str, bytes] = {}
        self.sent_prompts: dict[int, str] = {}
        """Letters whose words are in here, by their place, and the run that says them."""
        self.marks: list[int] = []
        """Which entries are marks, which are not for readers."""
        self.release = False
        self._rows: list[Row] | None = None

    @property
    def count(self) -> int:
        """How many entries there are, with the closing one."""
        return len(self.entries) + (self.closing is not None)

    @property
    def urgent(self) -> bool:
        """Whether this must survive a power cut: not when it says only that a run is over."""
        return self.closing is None or bool(self.entries)

    @property
    def rewrites(self) -> bool:
        """Whether the conversation is, from `first_message` on, `messages` and nothing else."""
        return self.cuts or bool(self.messages)

    def rows(self) -> list[Row]:
        """The entries as rows of the journal. Encoded once."""
        if self._rows is None:
            entries = self.entries if self.closing is None else [*self.entries, self.closing]
            self._rows = pack(entries, self.first_event)
        return self._rows

    def take_rows(self, rows: list[Row]) -> None:
        """Rows of a journal as they were stored elsewhere, instead of entries."""
        self._rows = rows

    def payloads(self) -> list[bytes]:
        """The messages, encoded once."""
        return self._payloads

    @cached_property
    def _payloads(self) -> list[bytes]:
        return [encode(message) for message in self.messages]


# --- What is read --------------------------------------------------------------------------------------------------


class RunRecord(Struct, frozen=True):
    """A run of a session, as `quiesce sessions show` lists it."""

    run_id: str
    agent: str
    started: float
    status: RunStatus
    reason: str = ""
    ended: float | None = None
    detail: bytes = b"null"


class SessionInfo(Struct, frozen=True):
    """A session, as `quiesce sessions list` lists it."""

    name: str
    id: str
    created: float
    updated: float
    length: int
    revision: int
    fence: int
    holder: Holder | None = None
    expires_in: float = 0.0


class Snapshot(Struct, frozen=True):
    """A session at one moment: its messages, and the journals of runs that have not ended."""

    info: SessionInfo
    messages: list[bytes]
    unfinished: dict[str, list[bytes]]
    values: dict[str, bytes]
    in_order: int | None = None
    """How many of the messages are in their places, when some after them are not."""


def up_to_gap(rows: Sequence[Sequence[Any]]) -> tuple[int, list[bytes]]:
    """Messages from (position, payload), sorted: how many are in their places, counted from 0, and all of them."""
    in_order = 0
    while in_order < len(rows) and rows[in_order][0] == in_order:
        in_order += 1
    return in_order, [row[1] for row in rows]


class AcquireRequest(Struct, frozen=True):
    """A request for a session, with a position in its queue or without one; `known` is the revision at hand."""

    holder: Holder
    seconds: float
    known: int | None = None
    position: int | None = None


class AcquiredSession(Struct, frozen=True):
    """A session that was taken: the lease, and what is stored unless the taker has that already."""

    lease: Lease
    snapshot: Snapshot | None


class SentElsewhere(Struct, frozen=True):
    """A session that is not needed any more: the run that had it has sent the queued prompt."""

    run_id: str
