"""The Postgres database of a store: one connection, one transaction at a time, its errors as `StoreError`s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from ...errors import StoreError, StoreUnavailable
from .dialect import CHANNEL, Access, Operation, Repeated, Rows, Statement, for_postgres
from .postgres_connection import checked_address, connect, explain, load_driver, migrate, public_url
from .schema import POSTGRES_MIGRATIONS, READABLE_FROM, READABLE_FROM_KEY, check_readable

_T = TypeVar("_T")

# Two processes must not migrate at once. Any number that no other program uses will do.
_MIGRATION_LOCK: Final = 7_164_200_526
# A process that is frozen inside a transaction would keep others from taking its session over.
IDLE_IN_TRANSACTION: Final = 10.0


class PostgresDatabase:
    """The database at `url`, and the connection to it. Only for one thread, on a loop that runs when needed."""

    def __init__(self, url: str) -> None:
        self._asyncpg: Final = load_driver("PostgresStore")
        self._address: Final = checked_address(url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Any = None

    @property
    def url(self) -> str:
        """Where this is, without the password."""
        return public_url(self._address)

    def run(self, access: Access, operation: Callable[[], Operation[_T]]) -> _T:
        """Carry an operation out in one transaction, on a loop that runs only for it."""
        return self.loop().run_until_complete(self._perform(access, operation))

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the store's thread. Raises `StoreUnavailable` when there is no descriptor for it."""
        if self._loop is None:
            try:
                self._loop = asyncio.new_event_loop()
            except OSError as error:
                todo = "Check the limit of open files (ulimit -n), then prompt again."
                raise StoreUnavailable(todo=todo, detail=f"{self.url}: {error}.") from error
        return self._loop

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """The connection, opened when there is none. An error in the block becomes a `StoreError`."""
        async with self._explained():
            yield await self._connected()

    async def _perform(self, access: Access, operation: Callable[[], Operation[_T]]) -> _T:
        """Try once more when a connection that was opened earlier turns out to be lost. Operations may be repeated."""
        used_before = self._connection is not None
        try:
            return await self._attempt(access, operation())
        except StoreUnavailable:
            if not used_before:
                raise
        return await self._attempt(access, operation())

    async def _attempt(self, access: Access, operation: Operation[_T]) -> _T:
        async with self._explained():
            db = await self._connected()
            async with db.transaction():
                try:
                    if access == "relaxed":
                        await db.execute("SET LOCAL synchronous_commit TO OFF")
                    return await _carry_out(db, operation)
                except TimeoutError:  # a rollback would wait as long again, for a link that is cut
                    self._drop_connection()
                    raise

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._address, IDLE_IN_TRANSACTION)
            await self._migrate(self._connection)
        return self._connection

    async def _migrate(self, db: Any) -> None:
        """Bring the schema to the newest version. That of a newer Quiesce stays as it is."""
        newest = len(POSTGRES_MIGRATIONS)
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
            version = await migrate(db, "quiesce_schema", POSTGRES_MIGRATIONS)
            if version > newest:
                text = "SELECT value FROM quiesce_store_values WHERE key = $1"
                check_readable(version, newest, await db.fetchval(text, READABLE_FROM_KEY), self.url)
            if version < newest:
                await db.execute(
                    "INSERT INTO quiesce_store_values (key, value) VALUES ($1, $2)"
                    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    READABLE_FROM_KEY,
                    b"%d" % READABLE_FROM,
                )

    @asynccontextmanager
    async def _explained(self) -> AsyncGenerator[None]:
        """An error of asyncpg becomes a `StoreError`; after one of the connection, the next call opens another."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # a connection that breaks in the middle of a message can raise almost anything
            broken = self._connection is None or self._connection.is_closed()
            self._drop_connection()
            text = f"{self.url}: {type(error).__name__}: {error}."
            unknown = (StoreUnavailable if broken else StoreError)(detail=text)
            raise explain(error, self.url) or unknown from error

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def close(self) -> None:
        """Close the connection and the loop. The next operation opens others."""
        loop, self._loop = self._loop, None
        connection, self._connection = self._connection, None
        if loop is not None:
            if connection is not None:
                with suppress(OSError, TimeoutError, self._asyncpg.PostgresError, self._asyncpg.InterfaceError):
                    loop.run_until_complete(connection.close(timeout=1))
            loop.close()


async def _carry_out(db: Any, operation: Operation[_T]) -> _T:
    rows: Rows = ()
    try:
        step = next(operation)
        while True:
            match step:
                case Statement(text, parameters):
                    rows = await db.fetch(for_postgres(text), *parameters)
                case Repeated(text, given):
                    await db.executemany(for_postgres(text), given)
                    rows = ()
                case _:  # sent by the server when the transaction is committed
                    rows = await db.fetch("SELECT pg_notify($1, $2)", CHANNEL, step.session)
            step = operation.send(rows)
    except StopIteration as done:
        return done.value
