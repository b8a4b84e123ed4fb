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
FORGOTTEN: Final = 3600.0


class Request(Struct, frozen=True):
    """A letter that is to be sent. Its place is passed over when it was not asked for again within `seconds`.

    `key` is another for each letter, so that one that is sent again is there once.
    """

    kind: PromptKind
    sender: Holder
    seconds: float
    body: bytes = b""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


class QueuedPrompt(Struct, frozen=True):
    """A letter as it is stored. `body` is the words to be said; `said_in` the run that has said them.

    `taken_by` is the run that is going to: from then on the sender cannot take them back.
    `fence` is the lease that the words are for: a later holder leaves them alone.
    """

    place: int
    kind: PromptKind
    sender: Holder
    fence: int
    expires_in: float
    body: bytes = b""
    said_in: str = ""
    taken_by: str = ""

    @property
    def withdrawn(self) -> bool:
        """Whether the sender has left, or was not heard of for very long."""
        return self.expires_in < -FORGOTTEN

    @property
    def waits(self) -> bool:
        """Whether the sender is still there, as far as can be told."""
        return self.expires_in > 0 and not self.sender.is_gone

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody will ever come back for it."""
        return self.withdrawn or self.sender.is_gone


class Admission(NamedTuple):
    """What a store answers somebody who wants a session. `busy` is None when they may have it.

    `said_in` is the run that has said their words, so that they need it no longer. `litter` is to be thrown away, and
    `since` is the `Lease.since` for them.
    """

    busy: SessionBusy | None
    said_in: str
    litter: tuple[int, ...]
    since: int


def admission(
    info: SessionInfo, letters: Sequence[QueuedPrompt], wanted_by: Holder | None, place: int | None
) -> Admission:
    """Who holds a session has it; then those in line, in order; then whoever comes by."""
    litter = tuple(letter.place for letter in letters if letter.is_orphaned and letter.place != place)
    mine = next((letter for letter in letters if letter.place == place), None)
    since = max((letter.place for letter in letters), default=0) if place is None else place
    if mine is not None and mine.said_in:
        return Admission(None, mine.said_in, litter, since)
    overtaken = place is not None and any(
        each.kind == "cancel" and each.place > place and not each.withdrawn for each in letters
    )
    busy = _busy(info, wanted_by, _first_in_line(letters, place))
    if overtaken:
        busy = busy or SessionBusy(info.name, "a newer prompt", 0.0)
        busy.overtaken = True
    return Admission(busy, "", litter, since)


def _busy(info: SessionInfo, wanted_by: Holder | None, first: QueuedPrompt | None) -> SessionBusy | None:
    holder = info.holder
    is_mine = holder is not None and wanted_by is not None and holder.owner == wanted_by.owner
    if holder is not None and not is_mine and info.expires_in > 0 and not holder.is_gone:
        return SessionBusy(info.name, str(holder), info.expires_in)
    if wanted_by is not None and first is not None and first.sender.owner != wanted_by.owner:
        return SessionBusy(info.name, str(first.sender), first.expires_in)
    return None


def _first_in_line(letters: Iterable[QueuedPrompt], place: int | None) -> QueuedPrompt | None:
    ahead = (letter for letter in letters if place is None or letter.place < place)
    return next((letter for letter in ahead if letter.waits and not letter.said_in), None)
