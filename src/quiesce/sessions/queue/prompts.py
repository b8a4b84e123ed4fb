"""Prompts that wait for a busy session: one row each, in order of arrival.

A row is deleted when its process gets the session, gives up, or learns that the running run has sent the prompt.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from ...errors import SessionBusy
from ..records import Holder, SessionInfo

# queue    waits for the session
# steer    is for the run that holds the session, and waits for the session in case that run does not send it
# cancel   asks all runs before it to stop, and waits for the session
PromptKind: TypeAlias = Literal["queue", "steer", "cancel"]

# A position that was not renewed in time is skipped; so many seconds later it is deleted.
ORPHANED_AFTER: Final = 3600.0


class QueueRequest(Struct, frozen=True):
    """A prompt to be queued. Its position is skipped when it was not renewed within `seconds`.

    `key` is unique, so that a request that is repeated is queued once.
    """

    kind: PromptKind
    sender: Holder
    seconds: float
    body: bytes = b""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


class QueuedPrompt(Struct, frozen=True):
    """A queued prompt as it is stored. `body` is the message; `sent_in` is the run that has sent it.

    `taken_by` is the run that will send it: from then on it cannot be withdrawn.
    `fence` is the lease that the message is for: a later holder does not take it.
    """

    position: int
    kind: PromptKind
    sender: Holder
    fence: int
    expires_in: float
    body: bytes = b""
    sent_in: str = ""
    taken_by: str = ""

    @property
    def is_withdrawn(self) -> bool:
        """Whether the process that queued it gave up, or stopped renewing it more than an hour ago."""
        return self.expires_in < -ORPHANED_AFTER

    @property
    def is_waiting(self) -> bool:
        """Whether the process that queued it is alive and renews it, as far as this process can see."""
        return self.expires_in > 0 and not self.sender.is_gone

    @property
    def is_orphaned(self) -> bool:
        """Whether it was withdrawn, or the process that queued it is dead."""
        return self.is_withdrawn or self.sender.is_gone


class LeaseDecision(NamedTuple):
    """What a store answers a process that wants a session. `busy` is None when it may have it.

    `sent_in` is the run that has sent its prompt already, so that it needs no session. `orphaned` are the positions to
    delete, and `since` is the `Lease.since` of the new lease.
    """

    busy: SessionBusy | None
    sent_in: str
    orphaned: tuple[int, ...]
    since: int


def decide_lease(
    info: SessionInfo, queued_prompts: Sequence[QueuedPrompt], wanted_by: Holder | None, position: int | None
) -> LeaseDecision:
    """The holder of a session keeps it; then come queued prompts, in order; then any other process."""
    orphaned = tuple(prompt.position for prompt in queued_prompts if prompt.is_orphaned and prompt.position != position)
    mine = next((prompt for prompt in queued_prompts if prompt.position == position), None)
    since = max((prompt.position for prompt in queued_prompts), default=0) if position is None else position
    if mine is not None and mine.sent_in:
        return LeaseDecision(None, mine.sent_in, orphaned, since)
    overtaken = position is not None and any(
        each.kind == "cancel" and each.position > position and not each.is_withdrawn for each in queued_prompts
    )
    busy = _busy(info, wanted_by, _first_waiting(queued_prompts, position))
    if overtaken:
        busy = busy or SessionBusy(info.name, "a newer prompt", 0.0)
        busy.overtaken = True
    return LeaseDecision(busy, "", orphaned, since)


def _busy(info: SessionInfo, wanted_by: Holder | None, first: QueuedPrompt | None) -> SessionBusy | None:
    holder = info.holder
    is_mine = holder is not None and wanted_by is not None and holder.owner == wanted_by.owner
    if holder is not None and not is_mine and info.expires_in > 0 and not holder.is_gone:
        return SessionBusy(info.name, str(holder), info.expires_in)
    if wanted_by is not None and first is not None and first.sender.owner != wanted_by.owner:
        return SessionBusy(info.name, str(first.sender), first.expires_in)
    return None


def _first_waiting(queued_prompts: Iterable[QueuedPrompt], position: int | None) -> QueuedPrompt | None:
    ahead = (prompt for prompt in queued_prompts if position is None or prompt.position < position)
    return next((prompt for prompt in ahead if prompt.is_waiting and not prompt.sent_in), None)
