"""Sessions in Postgres: for processes on many machines. Needs `pip install quiesce[postgres]`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...errors import StoreError
from ..queue.subscribers import Subscribers
from .postgres_database import PostgresDatabase
from .postgres_listener import PostgresListener
from .sql_store import SQLStore


class PostgresStore(SQLStore):
    """Sessions in the database at `url`; the tables, named `quiesce_...`, are made when they are first needed.

    One connection, used by one thread. Raises `MissingExtra` when asyncpg is not installed.
    """

    def __init__(self, url: str) -> None:
        database, subscribers = PostgresDatabase(url), Subscribers()
        self._notifications: Final = PostgresListener(subscribers, database.loop, database.connection)
        super().__init__(database, subscribers, self._notifications, "postgres")

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    def subscribe(self, session: str, function: Callable[[], None]) -> Callable[[], None]:
        """See `Coordination.subscribe`."""
        end = super().subscribe(session, function)
        if not self._notifications.is_listening:
            self._thread.submit(self._begin_to_listen)
        return end

    def _begin_to_listen(self) -> None:
        with suppress(StoreError):  # the listener tries again
            self._notifications.listen()
