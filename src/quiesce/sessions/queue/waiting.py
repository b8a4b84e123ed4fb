"""Waiting for a session that another process holds: by trying again, in the queue, or by steering its run."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from ...errors import SessionBusy, StoreError, StoreUnavailable
from ...messages import UserMessage
from ..journal import journal
from ..journal.rows import encode
from ..records import AcquiredSession, SentElsewhere, holder
from .prompts import PromptKind, QueueRequest

if TYPE_CHECKING:
    from ..session import Session

OnBusy: TypeAlias = Literal["refuse", "queue", "steer", "cancel_previous"]

_KINDS: Final[dict[OnBusy, PromptKind]] = {
    "refuse": "queue",
    "queue": "queue",
    "steer": "steer",
    "cancel_previous": "cancel",
}
# A change of the queue is notified. The death of the holder is not, so the lease is tried again this often.
RETRY_INTERVAL: Final = 1.0


class BusyPolicy(Struct, frozen=True):
    """What to do while another process holds the session; `prompt` is what is sent there with "steer"."""

    on_busy: OnBusy = "refuse"
    prompt: UserMessage | None = None


class SessionWaiter:
    """A run's wait for a session. Used once."""

    def __init__(self, session: Session, owner: str, known: int | None, busy_policy: BusyPolicy) -> None:
        self._session: Final = session
        self._holder: Final = holder(owner)
        self._known: Final = known
        # Without words of its own, as when a question is answered, a run neither waits for ever nor disturbs anybody.
        self._on_busy: Final[OnBusy] = "refuse" if busy_policy.prompt is None else busy_policy.on_busy
        body = encode(busy_policy.prompt) if self._on_busy == "steer" else b""
        self._request: Final = QueueRequest(_KINDS[self._on_busy], self._holder, session.lease, body)
        self._loop: Final = asyncio.get_running_loop()
        self._changed: Final = asyncio.Event()
        # From before it is asked for, so that no letter can come unseen between getting it and looking at its letters.
        self._unsubscribe: Final = session.store.subscribe(session.name, self._on_change)
        self.position: int | None = None
        self.is_queued = False
        """Whether this may have a place in the line: others may have read what came with it."""

    async def get(self, give_up: asyncio.Future[None]) -> AcquiredSession | SentElsewhere:
        """Take the session, or wait for it as long as is wanted and `give_up` is not done.

        Raises `SessionBusy` or another `StoreError`; the place in the line is given up then.
        """
        now = self._loop.time()
        busy_until = now + self._session.wait if self._on_busy == "refuse" else float("inf")
        away_until = now + journal.STORE_TIMEOUT
        wants_place = False
        try:
            while True:
                self._changed.clear()
                try:
                    if wants_place and self.position is None:
                        await self._enqueue()
                    return await self._ask()
                except StoreError as error:
                    busy = isinstance(error, SessionBusy)
                    if busy:  # the store is there
                        away_until = self._loop.time() + journal.STORE_TIMEOUT
                    left = (busy_until if busy else away_until) - self._loop.time()
                    if not (busy or error.retryable) or getattr(error, "overtaken", False):
                        raise
                    if give_up.done() or left <= 0:
                        return await self._leave_queue(error)
                if busy and not wants_place:
                    wants_place = True
                    continue
                await self._wait(give_up, min(RETRY_INTERVAL, left))
        except BaseException:
            self.stop_watching()
            raise
        finally:
            if self.position is not None:
                self._session.store.withdraw(self._session.name, self.position)

    def stop_watching(self) -> bool:
        """Look at the session no more. Whether something about it has changed since it was asked for last."""
        self._unsubscribe()
        return self._changed.is_set()

    async def _ask(self) -> AcquiredSession | SentElsewhere:
        """Ask for the session. A lease that arrives after a cancellation is given back."""
        session = self._session
        store, seconds, known = session.store, session.lease, self._known
        asked: Future[Any]
        if self.position is None:
            asked = store.acquire(session.name, self._holder, seconds=seconds, known=known)
        else:
            asked = store.acquire_queued(session.name, self._holder, self.position, seconds=seconds, known=known)
        try:
            async with asyncio.timeout(journal.STORE_TIMEOUT):
                taken: AcquiredSession | SentElsewhere = await asyncio.shield(asyncio.wrap_future(asked))
        except asyncio.CancelledError:
            asked.add_done_callback(self._release_unwanted)
            raise
        except TimeoutError:
            asked.add_done_callback(self._release_unwanted)
            raise StoreUnavailable(f"The store did not answer within {journal.STORE_TIMEOUT:g} s.") from None
        if isinstance(taken, AcquiredSession):  # else the place is given up in the end, now that this is known
            self.position = None
        self.is_queued = False
        return taken

    async def _enqueue(self) -> None:
        self.is_queued = True
        posted = self._session.store.enqueue(self._session.name, self._request)
        try:
            self.position = await asyncio.shield(asyncio.wrap_future(posted))
        except asyncio.CancelledError:
            posted.add_done_callback(self._withdraw_unwanted)
            raise

    async def _leave_queue(self, why: StoreError) -> SentElsewhere:
        """Leave the line. What was said for this one in the meantime is said; else the reason is raised."""
        position, self.position = self.position, None
        if position is not None:
            is_withdrawn = asyncio.wrap_future(self._session.store.withdraw(self._session.name, position))
            said = await asyncio.shield(is_withdrawn)
            if said is not None:
                return said
        raise why

    async def _wait(self, give_up: asyncio.Future[None], seconds: float) -> None:
        changed = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait((give_up, changed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _on_change(self) -> None:
        """Something about the session has changed. From whichever thread."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _release_unwanted(self, asked: Future[Any]) -> None:
        """Give back a lease that is no longer waited for."""
        if not asked.cancelled() and asked.exception() is None:
            taken = asked.result()
            if isinstance(taken, AcquiredSession):
                self._session.store.release(taken.lease)

    def _withdraw_unwanted(self, posted: Future[int]) -> None:
        if not posted.cancelled() and posted.exception() is None:
            self._session.store.withdraw(self._session.name, posted.result())
