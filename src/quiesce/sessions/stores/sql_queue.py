"""The queue of a session, in SQL: one row for each prompt that waits.

The table is called `letters`, and its columns `place` and `said_in`, in every store that was ever written.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..journal.rows import encode
from ..queue.prompts import QueuedPrompt, QueueRequest
from ..records import Holder, SentElsewhere, SessionInfo
from .dialect import Operation, Repeated, Statement


def prompts_of(session_id: str) -> Operation[list[QueuedPrompt]]:
    """The queued prompts, in order."""
    found = yield Statement(
        "SELECT place, kind, sender, fence, expires - {now}, body, said_in FROM {letters}"
        " WHERE session = $1 ORDER BY place",
        (session_id,),
    )
    return [
        QueuedPrompt(position, kind, msgspec.json.decode(sender, type=Holder), fence, expires_in, body, sent_in)
        for position, kind, sender, fence, expires_in, body, sent_in in found
    ]


def add_prompt(info: SessionInfo, request: QueueRequest) -> Operation[int]:
    """Queue a prompt, once for each key. Returns its position."""
    yield Statement(
        "INSERT INTO {letters} (session, kind, sender, fence, body, key, expires)"
        " VALUES ($1, $2, $3, $4, $5, $6, {now} + $7) ON CONFLICT (key) DO NOTHING",
        (info.id, request.kind, encode(request.sender), info.fence, request.body, request.key, request.seconds),
    )
    found = yield Statement("SELECT place FROM {letters} WHERE key = $1", (request.key,))
    return found[0][0]


def remove_prompts(positions: Iterable[int]) -> Operation[None]:
    """Delete queued prompts."""
    for position in positions:
        yield Statement("DELETE FROM {letters} WHERE place = $1", (position,))


def renew_position(position: int, seconds: float) -> Operation[None]:
    """Keep a position for another `seconds`: the process that queued it is alive."""
    yield Statement("UPDATE {letters} SET expires = {now} + $1 WHERE place = $2", (seconds, position))


def withdraw_prompt(position: int) -> Operation[SentElsewhere | None]:
    """Give a position up. The row stays for a while, so that a repeated call gives the same answer."""
    found = yield Statement(  # a run that has lost the session since it took the prompt will not send it
        "UPDATE {letters} SET expires = 0 WHERE place = $1 RETURNING CASE WHEN said_in <> ''"
        " OR fence = (SELECT {sessions}.fence FROM {sessions} WHERE id = {letters}.session) THEN taken_by END",
        (position,),
    )
    return SentElsewhere(found[0][0]) if found and found[0][0] else None


def set_taken_by(session_id: str, position: int, run_id: str) -> Operation[bool]:
    """Note the run that will send a prompt, or with "" that none will. False when the prompt was withdrawn."""
    found = yield Statement(
        "UPDATE {letters} SET taken_by = $1 WHERE place = $2 AND session = $3 AND expires > 0 RETURNING place",
        (run_id, position, session_id),
    )
    return bool(found)


def return_prompts(session_id: str, positions: Iterable[int]) -> Operation[list[int]]:
    """Return prompts to the queue; gives the positions of those that were withdrawn."""
    there: dict[int, bool] = {}
    for position in positions:
        there[position] = yield from set_taken_by(session_id, position, "")
    return [position for position in there if not there[position]]


def mark_sent(session_id: str, sent_prompts: dict[int, str]) -> Operation[None]:
    """Note which run has sent each of these prompts."""
    if sent_prompts:
        yield Repeated(
            "UPDATE {letters} SET said_in = $1 WHERE place = $2 AND session = $3",
            [(run_id, position, session_id) for position, run_id in sent_prompts.items()],
        )
