"""The values that go into a store and come out of it. Messages and events are bytes there."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..events import RunEnded
from ..messages import Message
from .journal.rows import JournalRow, Row, encode, pack

StoredRunStatus: TypeAlias = Literal["running", "ended", "crashed"]

# --- The writer ----------------------------------------------------------------------------------------------------


class Holder(Struct, frozen=True):
    """The process that holds a session: enough to name it in an error, and to see that it has ended.

    `process` identifies one process on one machine since its last start; empty on systems that do not say.
    """

    owner: str
    host: str
    pid: int
    process: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended. False when that cannot be seen from here."""
        here = _process_space()
        if not self.process or not here or not self.process.startswith(f"{here}/"):
            return False
        return self.process != f"{here}/{self.pid}/{_started_at(self.pid)}"


def holder(owner: str) -> Holder:
    """This process, as the holder of a session."""
    pid = os.getpid()
    if pid not in _this_process:
        space, started = _process_space(), _started_at(pid)
        if not space or not started:
            return Holder(owner, socket.gethostname(), pid)
        _this_process.clear()
        _this_process[pid] = f"{space}/{pid}/{started}"
    return Holder(owner, socket.gethostname(), pid, _this_process[pid])


_this_process: Final[dict[int, str]] = {}
"""What identifies this process, by its pid, which another has after a fork. Read once: that needs a descriptor."""


def _process_space() -> str:
    """The boot and the pid namespace. Two processes see each other when both are the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started_at(pid: int) -> str:
    """When a process started, by the kernel's clock; empty when it has ended, also as a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state[0] in "ZX" else state[19]


class Lease(Struct, frozen=True):
    """The right to write a session for `seconds` after the last write or renewal.

    A newer lease has a higher `fence`; then writes with this one are refused. `revision` is the session's when the
    lease was acquired: it changes with every write.
    """

    session: str
    session_id: str
    fence: int
    revision: int
    seconds: float
    owner: str
    since: int = 0
    """The last position in the queue when the lease was acquired: prompts after it came later."""


# --- Written -----------------------------------------------------------------------------------------------


class RunBegin(Struct, frozen=True):
    """The first write of a run to its session."""

    agent: str
    started: float


class RunEnd(Struct, frozen=True):
    """How a run ended; `detail` is its receipt, or after a crash what is known of it, as JSON."""

    status: StoredRunStatus
    reason: str
    ended: float
    detail: bytes = b"null"


class WriteBatch:
    """What is written in one transaction, all of it or nothing.

    Rows are numbered by run, and messages by session, so that a batch that is written twice is stored once.
    """

    def __init__(self, run_id: str, *, first_row: int = 0, first_event: int | None = None) -> None:
        self.run_id: Final = run_id
        self.first_row: Final = first_row
        self.first_event: Final = first_event
        """The number of the first event among the entries; None when events are not counted."""
        self.entries: list[JournalRow] = []
        self.closing: RunEnded | None = None
        """The run's last event, which is stored before readers get it."""
        self.messages: list[Message] = []
        self.first_message = 0
        self.cuts = False
        """Whether messages from `first_message` on are deleted, even if none replace them."""
        self.begin: RunBegin | None = None
        self.end: RunEnd | None = None
        self.values: dict[str, bytes] = {}
        self.sent_prompts: dict[int, str] = {}
        """The positions of queued prompts that are among the messages, and the run that sends each."""
        self.marks: list[int] = []
        """Which entries are marks: rows that are only for recovery."""
        self.release = False
        self._rows: list[Row] | None = None

    @property
    def count(self) -> int:
        """How many entries there are, with the closing event."""
        return len(self.entries) + (self.closing is not None)

    @property
    def urgent(self) -> bool:
        """Whether this must survive a power cut: not when it holds only the end of a run."""
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


# --- Read --------------------------------------------------------------------------------------------------


class RunRecord(Struct, frozen=True):
    """A run of a session, as `quiesce sessions show` lists it."""

    run_id: str
    agent: str
    started: float
    status: StoredRunStatus
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

    @property
    def is_record(self) -> bool:
        """Whether it is no conversation, but what a server keeps for an owner beside the runs: `owner/.audit`."""
        return self.name.partition("/")[2].startswith(".")


class Snapshot(Struct, frozen=True):
    """A session at one moment: its messages, and the journals of runs that have not ended."""

    info: SessionInfo
    messages: list[bytes]
    unfinished: dict[str, list[bytes]]
    values: dict[str, bytes]
    in_order: int | None = None
    """How many messages there are before the first gap, when there is one."""


def up_to_gap(rows: Sequence[Sequence[Any]]) -> tuple[int, list[bytes]]:
    """From sorted (position, payload): how many messages there are before the first gap, and all messages."""
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
    """A session that was acquired: the lease, and what is stored unless that is known already."""

    lease: Lease
    snapshot: Snapshot | None


class SentElsewhere(Struct, frozen=True):
    """The answer when a session is not needed any more: the run that has it has taken the queued prompt."""

    run_id: str


# Stores work in threads. msgspec prepares a type when it is first used, and crashes when two threads do so at once.
msgspec.json.Decoder(Holder)
