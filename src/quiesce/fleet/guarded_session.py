"""The session of a run on a worker: what is stored is checked once the lease is held, before anything is written.

A worker that was frozen before it had the lease may wake when another worker has finished its run. With the lease held
the check is safe: another worker that takes the run must first acquire a newer lease, and then this one cannot write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ..sessions import Session, SessionStore
from ..sessions.journal.buffer import WRITER
from ..sessions.queue.waiting import BusyPolicy
from ..sessions.records import Lease, SentElsewhere


class GuardedSession(Session):
    """A session whose lease is released again unless `check` allows the run to begin. `check` raises a `StoreError`."""

    def __init__(
        self,
        name: str,
        store: SessionStore,
        check: Callable[[GuardedSession], Awaitable[None]],
        *,
        lease: float,
        wait: float,
    ) -> None:
        super().__init__(name, store, lease=lease, wait=wait)
        self._check: Final = check

    @property
    def last_writer(self) -> str:
        """The run that wrote to the session last, as it was when the lease was acquired."""
        return self.values.get(WRITER, b"").decode()

    async def open(self, give_up: asyncio.Future[None], busy_policy: BusyPolicy | None = None) -> Lease | SentElsewhere:
        """See `Session.open`."""
        lease = await super().open(give_up, busy_policy)
        if isinstance(lease, Lease):
            try:
                await self._check(self)
            except BaseException:
                self.stop_watching()
                self.store.release(lease)
                raise
        return lease

    async def seal(self) -> None:
        """Acquire the session of a lost worker, which seals its runs and refuses its later writes, and release it."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lease = await self.open(never)
        if isinstance(lease, Lease):
            await asyncio.wrap_future(self.store.release(lease))
