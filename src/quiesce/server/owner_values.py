"""Small records of each owner that outlive runs.

In the store, an owner has a session for each kind of record, without messages: its values are the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from ..errors import SessionNotFound
from ..sessions import Session, SessionStore
from ..sessions.records import Lease
from .stored_session import stored_name

# Seconds to wait for another server that changes the same values.
_WAIT: Final = 10.0

Change: TypeAlias = Callable[[Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
"""From the values as they are to those that change."""


class OwnerValues:
    """Named values of each owner, of one kind. Without a store they are in memory. Only for the server's own loop.

    `name` begins with a dot: no session of a user is named so, because theirs begin with a letter or a digit.
    """

    def __init__(self, store: SessionStore | None, name: str) -> None:
        self._store: Final = store
        self._name: Final = name
        self._in_memory: Final[dict[str, dict[str, bytes]]] = {}
        self._one_at_a_time: Final = asyncio.Lock()

    async def read(self, owner: str) -> Mapping[str, bytes]:
        """The values of an owner. Raises a `StoreError`."""
        if self._store is None:
            return self._in_memory.get(owner, {})
        try:
            snapshot = await asyncio.wrap_future(self._store.load(stored_name(owner, self._name)))
        except SessionNotFound:
            return {}
        return snapshot.values

    async def change(self, owner: str, change: Change) -> None:
        """Change values, one change at a time, also between servers. Raises a `StoreError`; then it may be repeated."""
        async with self._one_at_a_time:
            if self._store is None:
                kept = self._in_memory.setdefault(owner, {})
                kept.update(await change(kept))
                return
            session = Session(stored_name(owner, self._name), self._store, wait=_WAIT)
            lease = await session.open(asyncio.get_running_loop().create_future())
            assert isinstance(lease, Lease)
            try:
                await session.save(lease, await change(session.values))
            finally:
                await asyncio.wrap_future(self._store.release(lease))
