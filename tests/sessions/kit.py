"""What the tests of sessions share."""

from __future__ import annotations

from typing import Any

from quiesce import tool
from quiesce.sessions.journal.rows import decode_messages
from quiesce.sessions.store import SessionStore


@tool
async def echo(word: str) -> str:
    """Say it again."""
    return word


def stored(store: SessionStore, name: str = "s") -> tuple[Any, ...]:
    return decode_messages(store.load(name).result().messages)
