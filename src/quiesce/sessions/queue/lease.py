"""The lease of a session while its run goes on: it is renewed, and queued prompts are read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from ...errors import LeaseLost
from ...events import LateOutcomeRecorded
from ...receipt import LateOutcome
from ..journal.rows import encode
from ..records import Lease
from ..store import SessionStore
from .inbox import PromptReceiver, SessionInbox

_log: Final = logging.getLogger("quiesce")


class HeldLease:
    """A lease, from its acquisition to its release. Only for the run's own loop.

    `on_lost` is called when another process has acquired the session.
    """

    def __init__(
        self, store: SessionStore, lease: Lease, receiver: PromptReceiver, on_lost: Callable[[LeaseLost], None]
    ) -> None:
        self.lease: Final = lease
        self._store: Final = store
        self._on_lost: Callable[[LeaseLost], None] = on_lost
        self._loop: Final = asyncio.get_running_loop()
        self.inbox: Final = SessionInbox(store, lease, receiver)
        self._written_at = 0.0
        self._timer = self._loop.call_later(lease.seconds / 3, self._renew)

    def on_write(self) -> None:
        """Note a write, which renews the lease."""
        self._written_at = self._loop.time()

    def _renew(self) -> None:
        """Renew the lease, unless a write has renewed it."""
        if self._loop.time() - self._written_at > self.lease.seconds / 4:
            self._store.renew(self.lease).add_done_callback(self._on_renewed)
        self._timer = self._loop.call_later(self.lease.seconds / 3, self._renew)

    def _on_renewed(self, future: Future[None]) -> None:
        error = future.exception()
        if isinstance(error, LeaseLost):  # any other failure is noticed by the next write
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._on_lost, error)

    def close(self) -> None:
        """Stop renewing the lease and reading prompts."""
        self._timer.cancel()
        self.inbox.close()
        self._on_lost = lambda _: None

    def release(self) -> None:
        """Release the lease."""
        self._store.release(self.lease)

    def save_late(self, run_id: str, outcome: LateOutcome) -> None:
        """Save the outcome of an abandoned call after the end of the run. From any thread."""

        def check(future: Future[bool]) -> None:
            error = future.exception()
            if error is not None or not future.result():
                why = "the session is gone" if error is None else error
                _log.warning(
                    "Call %s (%s) of run %s ended late; not saved: %s", outcome.call_id, outcome.name, run_id, why
                )

        payload = encode(LateOutcomeRecorded(outcome))
        self._store.add_late(self.lease.session_id, run_id, payload).add_done_callback(check)
