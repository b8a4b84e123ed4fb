"""Sessions of a server in a store: their names, and the requests that started their runs."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from ..errors import SessionBusy
from ..sessions import Session, SessionStore
from ..sessions.queue.busy_policy import BusyPolicy
from ..sessions.records import Lease, SentElsewhere

# A run that names no session has one of its own, whose name is made by the server.
_OF_ONE_RUN: Final = re.compile(r"run-[0-9a-f]{24}")
# The names of the values that say which run an idempotency key has started begin with this.
_REQUEST: Final = "request."


def stored_name(owner: str, session: str) -> str:
    """The name of an owner's session in the store."""
    return f"{quote(owner, safe='@')}/{session}"


def owner_and_name(stored: str) -> tuple[str, str] | None:
    """The owner and the name of a stored session; None for a session that was not made by a server."""
    owner, slash, name = stored.partition("/")
    return (unquote(owner), name) if slash and owner and name and name[0].isalnum() else None


def name_for_one_run(seed: str) -> str:
    """A name for the session of a run that names none. A request that is repeated leads to the same session."""
    return f"run-{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def is_of_one_run(name: str) -> bool:
    """Whether the server has made this session for a run that names none."""
    return _OF_ONE_RUN.fullmatch(name) is not None


class StartedRun(msgspec.Struct, frozen=True):
    """The run that an idempotency key has started, and a hash of the request."""

    run_id: str
    fingerprint: bytes


class StoredSession(Session):
    """A session that is saved together with the idempotency keys of its runs, so that they survive a restart."""

    def __init__(self, name: str, store: SessionStore) -> None:
        super().__init__(name, store)
        self._started: Final[dict[str, tuple[str, bytes]]] = {}

    def note_request(self, key: str, started: StartedRun) -> None:
        """Note, before the run begins, which key has started it. It is saved with the first event of the run."""
        self._started[started.run_id] = (_value_name(key), msgspec.json.encode(started))

    def opened(self) -> None:
        """Note, for the run that has opened the session, which key has started it."""
        super().opened()
        noted = self._started.pop(self.holder or "", None)
        if noted is not None and self._journal is not None:
            self._journal.set_value(*noted)

    def release(self, run_id: str) -> None:
        """Release the session."""
        self._started.pop(run_id, None)
        super().release(run_id)

    async def open(self, give_up: asyncio.Future[None], busy_policy: BusyPolicy | None = None) -> Lease | SentElsewhere:
        """Acquire the session; see `Session.open`. The error has no host names, because clients see it."""
        try:
            return await super().open(give_up, busy_policy)
        except SessionBusy as busy:
            told = SessionBusy(self.name.partition("/")[2], "another server", busy.expires_in)
            told.overtaken = busy.overtaken
            raise told from None

    def started_by(self, key: str) -> StartedRun | None:
        """The run that an idempotency key has started in this session, as it was last read from the store."""
        found = self.values.get(_value_name(key))
        return None if found is None else msgspec.json.decode(found, type=StartedRun)


def _value_name(key: str) -> str:
    return _REQUEST + hashlib.sha256(key.encode()).hexdigest()[:32]
