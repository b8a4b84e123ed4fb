"""Letters to a session that is busy: how a prompt in one process waits for, or speaks to, a run in another one.

Each is a row in the store, in the order in which it came. It is a place in the line; some say more than that to those
who came before. It is gone when its sender has got the session, has left, or was told that its words were said.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from ...errors import SessionBusy
from ..records import Holder, SessionInfo

# queue    waits for its turn
# steer    has words for the run that holds the session, and waits for its turn in case they are not said
# cancel   asks all who came before to stop, and waits for them to be at rest
PromptKind: TypeAlias = Literal["queue", "steer", "cancel"]

# A sender whose place has expired is passed over, and finds it again when it comes back before this many seconds.
ORPHANED_AFTER: Final = 3600.0


class QueueRequest(Struct, frozen=True):
    """A letter that is to be sent. Its place is passed over when it was not asked for again within `seconds`.

    `key` is another for each letter, so that one that is sent again is there once.
    """

    kind: PromptKind
    sender: Holder
    seconds: float
    body: bytes = b""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


class QueuedPrompt(Struct, frozen=True):
    """A letter as it is stored. `body` is the words to be said; `sent_in` the run that has said them.

    `taken_by` is the run that is going to: from then on the sender cannot take them back.
    `fence` is the lease that the words are for: a later holder leaves them alone.
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
        """Whether the sender has left, or was not heard of for very long."""
        return self.expires_in < -ORPHANED_AFTER

    @property
    def is_waiting(self) -> bool:
        """Whether the sender is still there, as far as can be told."""
        return self.expires_in > 0 and not self.sender.is_gone

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody will ever come back for it."""
        return self.is_withdrawn or self.sender.is_gone


class LeaseDecision(NamedTuple):
    """What a store answers somebody who wants a session. `busy` is None when they may have it.

    `sent_in` is the run that has said their words, so that they need it no longer. `orphaned` is to be thrown away, and
    `since` is the `Lease.since` for them.
    """

    busy: SessionBusy | None
    sent_in: str
    orphaned: tuple[int, ...]
    since: int


def decide_lease(
    info: SessionInfo, queued_prompts: Sequence[QueuedPrompt], wanted_by: Holder | None, position: int | None
) -> LeaseDecision:
    """Who holds a session has it; then those in line, in order; then whoever comes by."""
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
