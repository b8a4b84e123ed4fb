"""Waiting for a session that another process holds: by trying again, in the queue, or by steering its run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..._threads.tasks import start_task
from ...errors import SessionBusy, StoreError, StoreUnavailable
from ..journal import journal
from ..journal.rows import encode
from ..records import AcquiredSession, SentElsewhere, holder
from .busy_policy import BusyPolicy, OnBusy
from .prompts import PromptKind, QueueRequest

if TYPE_CHECKING:
    from ..session import Session

_KINDS: Final[dict[OnBusy, PromptKind]] = {
    "refuse": "queue",
    "queue": "queue",
    "steer": "steer",
    "cancel_previous": "cancel",
}
# A change of the queue is notified. The death of the holder is not, so the lease is tried again this often.
RETRY_INTERVAL: Final = 1.0


class SessionWaiter:
    """A run's wait for a session. Used once."""

    def __init__(self, session: Session, owner: str, known: int | None, busy_policy: BusyPolicy) -> None:
        self._session: Final = session
        self._holder: Final = holder(owner)
        self._known: Final = known
        # A run without a prompt, such as the answer to a question, does not queue: it refuses after `session.wait`.
        self._on_busy: Final[OnBusy] = "refuse" if busy_policy.prompt is None else busy_policy.on_busy
        body = encode(busy_policy.prompt) if self._on_busy == "steer" else b""
        self._request: Final = QueueRequest(_KINDS[self._on_busy], self._holder, session.lease, body)
        self._loop: Final = asyncio.get_running_loop()
        self._changed: Final = asyncio.Event()
        # Before the session is requested, so that no prompt is missed between the acquisition and the first read.
        self._unsubscribe = session.store.subscribe(session.name, self._on_change)
        self._requested: Future[Any] | None = None
        self.position: int | None = None
        self.is_queued = False
        """Whether this may have a position in the queue, where the holder can read its prompt."""

    async def get(self, give_up: asyncio.Future[None]) -> AcquiredSession | SentElsewhere:
        """Acquire the session, or wait for it until the time limit or until `give_up` is done.

        Raises `SessionBusy` or another `StoreError`, after leaving the queue.
        """
        now = self._loop.time()
        busy_until = now + self._session.wait if self._on_busy == "refuse" else float("inf")
        away_until = now + journal.STORE_TIMEOUT
        joins_queue = False
        try:
            while True:
                self._changed.clear()
                try:
                    if joins_queue and self.position is None:
                        await self._enqueue()
                    return await self._acquire()
                except StoreError as error:
                    busy = isinstance(error, SessionBusy)
                    if busy:  # so the store can be reached
                        away_until = self._loop.time() + journal.STORE_TIMEOUT
                    left = (busy_until if busy else away_until) - self._loop.time()
                    if not (busy or error.retryable) or getattr(error, "overtaken", False):
                        raise
                    if give_up.done() or left <= 0:
                        return await self._leave_queue(error)
                if busy and not joins_queue:
                    joins_queue = True
                    continue
                await self._wait(give_up, min(RETRY_INTERVAL, left))
        except BaseException:
            self.abandon()
            raise
        finally:
            if self.position is not None:
                self._session.store.withdraw(self._session.name, self.position)

    def abandon(self) -> None:
        """Release the lease that was acquired last, or that arrives later. One that is released already stays so."""
        self.stop_watching()
        if self._requested is not None:
            _leave(self._requested, self._release_unwanted)

    def stop_watching(self) -> bool:
        """Unsubscribe from the session. Returns whether it has changed since it was last requested."""
        self._unsubscribe()
        self._unsubscribe = lambda: None
        return self._changed.is_set()

    async def _acquire(self) -> AcquiredSession | SentElsewhere:
        """Request the session once. A request that is no longer waited for is withdrawn, or its lease is released."""
        session = self._session
        store, seconds, known = session.store, session.lease, self._known
        if self.position is None:
            requested = store.acquire(session.name, self._holder, seconds=seconds, known=known)
        else:
            requested = store.acquire_queued(session.name, self._holder, self.position, seconds=seconds, known=known)
        self._requested = requested
        try:
            acquired: AcquiredSession | SentElsewhere = await _answer(requested)
        except StoreUnavailable:
            _leave(requested, self._release_unwanted)
            raise
        if isinstance(acquired, AcquiredSession):  # else the position is withdrawn at the end of `get`
            self.position = None
        self.is_queued = False
        return acquired

    async def _enqueue(self) -> None:
        self.is_queued = True
        enqueued = self._session.store.enqueue(self._session.name, self._request)
        try:
            self.position = await _answer(enqueued)
        except (asyncio.CancelledError, StoreUnavailable):
            _leave(enqueued, self._withdraw_unwanted)
            raise

    async def _leave_queue(self, why: StoreError) -> SentElsewhere:
        """Leave the queue. Returns the run that has sent the prompt meanwhile; else raises the reason."""
        position, self.position = self.position, None
        if position is not None:
            sent = await _answer(self._session.store.withdraw(self._session.name, position))
            if sent is not None:
                return sent
        raise why

    async def _wait(self, give_up: asyncio.Future[None], seconds: float) -> None:
        changed = start_task(self._changed.wait(), loop=self._loop)
        try:
            await asyncio.wait((give_up, changed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _on_change(self) -> None:
        """The session has changed. From any thread."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _release_unwanted(self, requested: Future[Any]) -> None:
        """Release a lease that is no longer wanted."""
        if not requested.cancelled() and requested.exception() is None:
            acquired = requested.result()
            if isinstance(acquired, AcquiredSession):
                self._session.store.release(acquired.lease)

    def _withdraw_unwanted(self, enqueued: Future[int]) -> None:
        if not enqueued.cancelled() and enqueued.exception() is None:
            self._session.store.withdraw(self._session.name, enqueued.result())


async def _answer(requested: Future[Any]) -> Any:
    """The answer of the store. Raises `StoreUnavailable` when there is none in time."""
    try:
        async with asyncio.timeout(journal.STORE_TIMEOUT):
            return await asyncio.shield(observed(requested))
    except TimeoutError:
        raise StoreUnavailable(f"The store did not answer within {journal.STORE_TIMEOUT:g} s.") from None


def _leave(requested: Future[Any], undo: Callable[[Future[Any]], None]) -> None:
    """Withdraw a request that the store has not begun, or undo it when it is done.

    A store that is slow gets slower with each request that no run waits for any more.
    """
    if not requested.cancel():
        requested.add_done_callback(undo)


def observed(future: Future[Any]) -> asyncio.Future[Any]:
    """The future for this loop. Its failure is not logged as forgotten when the wait for it was cancelled."""

    def observe(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()

    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(observe)
    return wrapped
