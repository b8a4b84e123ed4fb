"""The line for a session, in Postgres. Each function is called inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..journal.rows import encode
from ..queue.prompts import QueuedPrompt, QueueRequest
from ..records import Holder, SentElsewhere, SessionInfo

NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
CHANNEL: Final = "quiesce"


async def prompts_of(db: Any, session_id: str) -> list[QueuedPrompt]:
    """The line, in order."""
    found = await db.fetch(
        f"SELECT place, kind, sender, fence, expires - {NOW} AS expires_in, body, said_in FROM quiesce_letters"
        " WHERE session = $1 ORDER BY place",
        session_id,
    )
    return [
        QueuedPrompt(position, kind, msgspec.json.decode(sender, type=Holder), fence, expires_in, body, sent_in)
        for position, kind, sender, fence, expires_in, body, sent_in in found
    ]


async def add_prompt(db: Any, info: SessionInfo, request: QueueRequest) -> int:
    """Get in line. Gives the place."""
    await db.execute(
        "INSERT INTO quiesce_letters (session, kind, sender, fence, expires, body, key)"
        f" VALUES ($1, $2, $3, $4, {NOW} + $5, $6, $7) ON CONFLICT (key) DO NOTHING",
        *(info.id, request.kind, encode(request.sender), info.fence, request.seconds, request.body, request.key),
    )
    return await db.fetchval("SELECT place FROM quiesce_letters WHERE key = $1", request.key)


async def remove_prompt(db: Any, position: int) -> None:
    """Throw a letter away."""
    await db.execute("DELETE FROM quiesce_letters WHERE place = $1", position)


async def withdraw(db: Any, position: int) -> SentElsewhere | None:
    """Give a place up. The letter stays for a while, so that asking twice gives the same answer."""
    taken_by = await db.fetchval("UPDATE quiesce_letters SET expires = 0 WHERE place = $1 RETURNING taken_by", position)
    return SentElsewhere(taken_by) if taken_by else None


async def take_prompt(db: Any, session_id: str, position: int, run_id: str) -> bool:
    """Take the words of a letter, to be said. False when its sender has left."""
    taken = await db.fetchval(
        "UPDATE quiesce_letters SET taken_by = $3 WHERE place = $1 AND session = $2 AND expires > 0 RETURNING place",
        *(position, session_id, run_id),
    )
    return taken is not None


async def return_prompts(db: Any, session_id: str, positions: Sequence[int]) -> list[int]:
    """Give back what was taken from these places; gives those whose sender has left."""
    found = await db.fetch(
        "UPDATE quiesce_letters SET taken_by = '' WHERE session = $1 AND place = ANY($2) AND expires > 0"
        " RETURNING place",
        *(session_id, list(positions)),
    )
    there = {row["place"] for row in found}
    return [position for position in positions if position not in there]


async def renew_position(db: Any, position: int, seconds: float) -> None:
    """Say that the sender is still there."""
    await db.execute(f"UPDATE quiesce_letters SET expires = {NOW} + $2 WHERE place = $1", position, seconds)


async def mark_sent(db: Any, session_id: str, sent_prompts: dict[int, str]) -> None:
    """The words of these letters are said."""
    for position, run_id in sent_prompts.items():
        await db.execute(
            "UPDATE quiesce_letters SET said_in = $3 WHERE place = $1 AND session = $2", position, session_id, run_id
        )


async def tell(db: Any, session: str) -> None:
    """Let those who watch a session know that it has changed hands, or its line has; when this is committed."""
    await db.execute("SELECT pg_notify($1, $2)", CHANNEL, session)
