"""A `Store` of the user's own, for the sessions of one process: leases and queues are in this process's memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from msgspec import structs

from ...errors import LeaseLost, StoreDamaged, StoreError, StoreUnavailable
from ..store import Store
from .content import AddedLate, Created, Record, RunDeleted, SessionContent, Written, decode_record, encode_record
from .memory import HeldSession, MemoryStore
from .store_thread import StoreThread

_log: Final = logging.getLogger("quiesce")
_T = TypeVar("_T")


class LocalStore(MemoryStore):
    """The sessions in `store`. The content of a session is in memory while a run holds it, or is read again."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store: Final = store
        self._loaded: Final[set[str]] = set()
        self._thread: Final = StoreThread(f"quiesce-store-{type(store).__name__}")

    @property
    def url(self) -> str:
        """The kind of store."""
        return type(self.store).__name__

    def __repr__(self) -> str:
        return f"LocalStore({self.store!r})"

    def close(self) -> Future[None]:
        """See `SessionStore.close`."""
        return self._submit(self._thread.retire)

    def _submit(self, function: Callable[..., _T], *args: Any, notify: str | None = None) -> Future[_T]:
        """Call a function in the store's thread."""

        def call() -> _T:
            try:
                with self._explained():
                    outcome = function(*args)
            finally:
                self._forget_content()
            if notify is not None:
                self._subscribers.tell(notify)
            return outcome

        return self._thread.submit(call)

    @contextmanager
    def _explained(self) -> Generator[None]:
        """A failure of the user's store becomes a `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise StoreUnavailable(
                todo="Check what the store needs, then prompt again.",
                detail=f"{self.url}: {type(error).__name__}: {error}.",
            ) from error
        except Exception as error:
            raise StoreError(detail=f"{self.url}: {type(error).__name__}: {error}.") from error

    def _forget_content(self) -> None:
        for name in tuple(self._loaded):
            held = self._sessions.get(name)
            if held is not None and held.holder is None:
                held.content = SessionContent(held.content.created)
            if held is None or held.holder is None:
                self._loaded.discard(name)

    # --- Where the content is -----------------------------------------------------------------------------------

    def _all(self) -> Iterable[HeldSession]:
        for name in tuple(self.store.names()):
            try:
                yield self._existing(name)
            except StoreDamaged as error:
                _log.warning("Session %r is left out: %s", name, error.what)

    def _find(self, session: str) -> HeldSession | None:
        held = self._sessions.get(session)
        if held is not None and session in self._loaded:
            return held
        records = [decode_record(record) for record in self.store.read(session)]
        if not records:
            self._sessions.pop(session, None)
            return None
        if not isinstance(records[0], Created):
            raise StoreDamaged(f"The first record of session {session!r} is missing.")
        content = SessionContent(records[0])
        for record in records[1:]:
            content.apply(record)
        if held is None:
            held = self._sessions[session] = HeldSession(session, content)
        held.content = content
        self._loaded.add(session)
        return held

    def _create(self, session: str, created: Created) -> HeldSession:
        try:
            self.store.append(session, 0, encode_record(created))
        except FileExistsError:  # it was made a moment ago, by this call before it failed or by another process
            return self._existing(session)
        self._loaded.add(session)
        return super()._create(session, created)

    def _save(self, held: HeldSession, record: Record) -> None:
        """Append a record. A number that is taken belongs to an earlier attempt, or to another process."""
        number = held.content.records
        try:
            self.store.append(held.name, number, encode_record(record))
        except FileExistsError:
            self._loaded.discard(held.name)
            self._check_saved(held.name, number, record)
        else:
            super()._save(held, record)

    def _check_saved(self, session: str, number: int, record: Record) -> None:
        found = decode_record(self.store.read(session)[number])
        if isinstance(found, Written) and isinstance(record, Written):
            record = structs.replace(record, at=found.at)
        held = self._existing(session)
        if found == record:
            return
        if isinstance(record, AddedLate | RunDeleted):  # needs no lease
            self._save(held, record)
            return
        held.holder, held.fence = None, held.fence + 1
        raise LeaseLost(
            f"Another process has written session {session!r}, and the store is for the sessions of one process.",
            detail=f"It is {self.url}.",
            todo="Use SQLite or Postgres for several processes, or give your store the methods of SessionStore.",
        )

    def _delete(self, session: str) -> None:
        super()._delete(session)
        self.store.delete(session)
