"""What of a stored session can be read, and what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from ..conversation.conversation import TASK
from ..conversation.sealing import last_complete_turn
from ..conversation.validity import faults
from ..errors import StoreDamaged
from ..interrupts import PendingTurn
from ..messages import Message
from ..task import Task
from .journal.rows import JournalRow, decode_messages, decode_row
from .records import Snapshot
from .state import STATE

# Where a turn that waits for a person is kept.
PENDING: Final = "conversation.pending"
# The values that every run of the session reads: what each is called, and its type.
_READ_BY_RUNS: Final[dict[str, tuple[str, Any]]] = {
    PENDING: ("turn that waits for a person", PendingTurn | None),
    STATE: ("state", dict[str, Any]),
    TASK: ("task", Task),
}


class StoredConversation(NamedTuple):
    """A stored conversation, with its turn that waits for a person."""

    messages: tuple[Message, ...]
    pending: PendingTurn | None = None


class Reading(NamedTuple):
    """A stored conversation up to the first damage, and what that is; empty when there is none."""

    found: StoredConversation
    damage: str = ""


def read_whole(snapshot: Snapshot) -> StoredConversation:
    """The stored conversation. Raises `StoreDamaged`."""
    found, damage = read_undamaged(snapshot)
    if damage:
        raise damaged(snapshot.info.name, damage)
    return found


def read_undamaged(snapshot: Snapshot) -> Reading:
    """The undamaged beginning of the stored conversation."""
    messages, damage = _decoded(snapshot.messages[: snapshot.in_order])
    if not damage and len(snapshot.messages) != snapshot.info.length:
        damage = f"It has {len(snapshot.messages)} of its {snapshot.info.length} messages."
    elif not damage and len(messages) < len(snapshot.messages):
        damage = f"Message {len(messages)} is missing."
    wrong = faults(messages)
    if wrong:
        damage = f"It is not a valid conversation: {'; '.join(wrong[:3])}."
    if damage:
        return Reading(StoredConversation(_valid_part(messages)), damage)
    unread = unread_values(snapshot.values)
    pending = None if PENDING in unread else snapshot.values.get(PENDING, b"null")
    found = msgspec.json.decode(pending or b"null", type=PendingTurn | None)
    return Reading(StoredConversation(messages, found), next(iter(unread.values()), ""))


def unread_values(values: Mapping[str, bytes]) -> dict[str, str]:
    """The values that a run needs and that cannot be read: for each, why."""
    unread: dict[str, str] = {}
    for key, (name, kind) in _READ_BY_RUNS.items():
        try:
            if key in values:
                msgspec.json.decode(values[key], type=kind)
        except (msgspec.MsgspecError, UnicodeError) as error:
            unread[key] = f"The {name} cannot be read: {error}."
    return unread


def _decoded(payloads: Sequence[bytes]) -> tuple[tuple[Message, ...], str]:
    """The messages up to the first that cannot be read, and why."""
    with suppress(StoreDamaged):
        return decode_messages(payloads), ""
    messages: list[Message] = []
    for payload in payloads:
        try:
            messages += decode_messages([payload])
        except StoreDamaged as error:
            return tuple(messages), error.what
    return tuple(messages), ""


def read_rows(payloads: Iterable[bytes]) -> tuple[list[JournalRow], str]:
    """The rows of a journal up to the first that cannot be read, and why."""
    rows: list[JournalRow] = []
    for payload in payloads:
        try:
            rows.append(decode_row(payload))
        except StoreDamaged as error:
            return rows, error.what
    return rows, ""


def damaged(session: str, what: str) -> StoreDamaged:
    """The error for a session that cannot be continued."""
    return StoreDamaged(
        f"Session {session!r} is damaged. {what}",
        todo=f"`quiesce sessions repair {session}` keeps what is whole and a copy of the rest.",
    )


def _valid_part(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The longest beginning that is a valid conversation and ends with a whole turn."""
    valid, invalid = 0, len(messages) + 1
    while invalid - valid > 1:
        middle = (valid + invalid) // 2
        if faults(last_complete_turn(messages, middle)):
            invalid = middle
        else:
            valid = middle
    return last_complete_turn(messages, valid)
