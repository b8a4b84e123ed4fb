"""Getting a session that somebody else has: by asking again, by waiting in line, or by speaking to those before."""

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
from ..records import AcquiredSession, Said, holder
from .prompts import PromptKind, Request

if TYPE_CHECKING:
    from ..session import Session

OnBusy: TypeAlias = Literal["refuse", "queue", "steer", "cancel_previous"]

_KINDS: Final[dict[OnBusy, PromptKind]] = {
    "refuse": "queue",
    "queue": "queue",
    "steer": "steer",
    "cancel_previous": "cancel",
}
# Whoever waits in line is told when the line moves. That the holder has died, nobody tells: it is looked at this often.
ASK_AGAIN: Final = 1.0


class BusyPolicy(Struct, frozen=True):
    """What to do about a session that somebody else has; `prompt` is what is to be said there with "steer"."""

    on_busy: OnBusy = "refuse"
    prompt: UserMessage | None = None


class SessionWaiter:
    """Somebody who wants a session. Used once."""

    def __init__(self, session: Session, owner: str, known: int | None, wish: BusyPolicy) -> None:
        self._session: Final = session
        self._holder: Final = holder(owner)
        self._known: Final = known
        # Without words of its own, as when a question is answered, a run neither waits for ever nor disturbs anybody.
        self._on_busy: Final[OnBusy] = "refuse" if wish.prompt is None else wish.on_busy
        body = encode(wish.prompt) if self._on_busy == "steer" else b""
        self._request: Final = Request(_KINDS[self._on_busy], self._holder, session.lease, body)
        self._loop: Final = asyncio.get_running_loop()
        self._changed: Final = asyncio.Event()
        # From before it is asked for, so that no letter can come unseen between getting it and looking at its letters.
        self._unwatch: Final = session.store.watch(session.name, self._on_change)
        self.place: int | None = None
        self.in_line = False
        """Whether this may have a place in the line: others may have read what came with it."""

    async def get(self, patient: asyncio.Future[None]) -> AcquiredSession | Said:
        """Take the session, or wait for it as long as is wanted and `patient` is not done.

        Raises `SessionBusy` or another `StoreError`; the place in the line is given up then.
        """
        now = self._loop.time()
        busy_until = now + self._session.wait if self._on_busy == "refuse" else float("inf")
        away_until = now + journal.PATIENCE
        wants_place = False
        try:
            while True:
                self._changed.clear()
                try:
                    if wants_place and self.place is None:
                        await self._get_in_line()
                    return await self._ask()
                except StoreError as error:
                    busy = isinstance(error, SessionBusy)
                    if busy:  # the store is there
                        away_until = self._loop.time() + journal.PATIENCE
                    left = (busy_until if busy else away_until) - self._loop.time()
                    if not (busy or error.retryable) or getattr(error, "overtaken", False):
                        raise
                    if patient.done() or left <= 0:
                        return await self._give_up(error)
                if busy and not wants_place:
                    wants_place = True
                    continue
                await self._wait(patient, min(ASK_AGAIN, left))
        except BaseException:
            self.stop_watching()
            raise
        finally:
            if self.place is not None:
                self._session.store.withdraw(self._session.name, self.place)

    def stop_watching(self) -> bool:
        """Look at the session no more. Whether something about it has changed since it was asked for last."""
        self._unwatch()
        return self._changed.is_set()

    async def _ask(self) -> AcquiredSession | Said:
        """Ask for the session; whoever is cancelled here gives back what came too late."""
        session = self._session
        store, seconds, known = session.store, session.lease, self._known
        asked: Future[Any]
        if self.place is None:
            asked = store.acquire(session.name, self._holder, seconds=seconds, known=known)
        else:
            asked = store.acquire_queued(session.name, self._holder, self.place, seconds=seconds, known=known)
        try:
            async with asyncio.timeout(journal.PATIENCE):
                taken: AcquiredSession | Said = await asyncio.shield(asyncio.wrap_future(asked))
        except asyncio.CancelledError:
            asked.add_done_callback(self._give_back)
            raise
        except TimeoutError:
            asked.add_done_callback(self._give_back)
            raise StoreUnavailable(f"The store did not answer within {journal.PATIENCE:g} s.") from None
        if isinstance(taken, AcquiredSession):  # else the place is given up in the end, now that this is known
            self.place = None
        self.in_line = False
        return taken

    async def _get_in_line(self) -> None:
        self.in_line = True
        posted = self._session.store.post(self._session.name, self._request)
        try:
            self.place = await asyncio.shield(asyncio.wrap_future(posted))
        except asyncio.CancelledError:
            posted.add_done_callback(self._take_back)
            raise

    async def _give_up(self, why: StoreError) -> Said:
        """Leave the line. What was said for this one in the meantime is said; else the reason is raised."""
        place, self.place = self.place, None
        if place is not None:
            withdrawn = asyncio.wrap_future(self._session.store.withdraw(self._session.name, place))
            said = await asyncio.shield(withdrawn)
            if said is not None:
                return said
        raise why

    async def _wait(self, patient: asyncio.Future[None], seconds: float) -> None:
        changed = self._loop.create_task(self._changed.wait())
        try:
            await asyncio.wait((patient, changed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _on_change(self) -> None:
        """Something about the session has changed. From whichever thread."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _give_back(self, asked: Future[Any]) -> None:
        """Nobody waits for this lease any more."""
        if not asked.cancelled() and asked.exception() is None:
            taken = asked.result()
            if isinstance(taken, AcquiredSession):
                self._session.store.release(taken.lease)

    def _take_back(self, posted: Future[int]) -> None:
        if not posted.cancelled() and posted.exception() is None:
            self._session.store.withdraw(self._session.name, posted.result())
