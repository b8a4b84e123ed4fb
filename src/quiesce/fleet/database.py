"""The Postgres of a fleet: a pool of connections, the schema, and errors as `StoreError`s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ..errors import ConfigurationError, StoreError, StoreReadOnly, StoreUnavailable
from ..sessions.stores import postgres_connection
from ..sessions.stores.postgres_connection import (
    checked_address,
    configure,
    explain,
    load_driver,
    migrate,
    public_url,
)
from .engine import Engine
from .schema import MIGRATIONS

_P = ParamSpec("_P")
_T = TypeVar("_T")

_CONNECTIONS: Final = 4
# Two processes must not migrate at once. Any number that no other program uses will do.
_MIGRATION_LOCK: Final = 7_164_200_527
# A process that is frozen inside a transaction holds its locks; after so many seconds the server ends the transaction.
IDLE_IN_TRANSACTION: Final = 5.0


class FleetDatabase:
    """The database at `url`. For one event loop; opened when it is first used."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("postgres://", "postgresql://")):
            raise ConfigurationError("A fleet needs Postgres.", todo="Use store='postgresql://...'.")
        self._asyncpg: Final = load_driver("A fleet")
        self._address: Final = checked_address(url)
        self.engine: Final = Engine()
        self._opening: Final = asyncio.Lock()
        self._pool: Any = None

    @property
    def url(self) -> str:
        """Where this is, without the password."""
        return public_url(self._address)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """A connection of the pool. Raises a `StoreError`."""
        async with self._explained():
            pool, connection = await self._acquired()
            try:
                with _dropped_when_cut(connection):
                    yield connection
            finally:
                await pool.release(connection)

    async def ask(
        self, statement: Callable[Concatenate[Any, _P], Awaitable[_T]], *args: _P.args, **options: _P.kwargs
    ) -> _T:
        """What a function of the tables gives, with a connection of the pool. Raises a `StoreError`."""
        async with self.connection() as db:
            return await statement(db, *args, **options)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        """A connection in a transaction. Raises a `StoreError`; then nothing is changed, unless the commit was cut."""
        async with self.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except (TimeoutError, asyncio.CancelledError):
                raise  # the connection is dropped, and with it the transaction
            except BaseException:
                await transaction.rollback()
                raise
            await transaction.commit()

    async def _acquired(self) -> tuple[Any, Any]:
        """The pool, and a connection of it. Where the address leads to no Postgres, the driver can raise anything."""
        try:
            pool = await self._opened()
            return pool, await pool.acquire(timeout=postgres_connection.CONNECT_TIMEOUT)
        except StoreError:
            raise
        except Exception as error:
            unknown = StoreUnavailable(detail=f"{self.url}: {type(error).__name__}: {error}.")
            raise explain(error, self.url) or unknown from error

    async def _opened(self) -> Any:
        async with self._opening:
            if self._pool is None:
                await self._migrate()
                self._pool = await self._asyncpg.create_pool(
                    self._address,
                    min_size=0,  # else the pool tries to connect by itself, and logs each failure
                    max_size=_CONNECTIONS,
                    timeout=postgres_connection.CONNECT_TIMEOUT,
                    command_timeout=postgres_connection.STATEMENT_TIMEOUT,
                    init=partial(configure, idle_timeout=IDLE_IN_TRANSACTION),
                    reset=_keep,
                )
            return self._pool

    async def _migrate(self) -> None:
        connection = await self.connect()
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK)
            async with connection.transaction():
                version = await migrate(connection, "quiesce_fleet_schema", MIGRATIONS)
            if version <= len(MIGRATIONS):  # the tables of a newer version have been updated by it
                await self.engine.install(connection)
        finally:
            await connection.close(timeout=1)

    async def connect(self) -> Any:
        """A connection of its own, for notifications."""
        return await postgres_connection.connect(self._address, IDLE_IN_TRANSACTION)

    @asynccontextmanager
    async def _explained(self) -> AsyncGenerator[None]:
        """An error of asyncpg becomes a `StoreError`."""
        try:
            yield
        except Exception as error:
            failure = explain(error, self.url)
            if failure is None:
                raise
            if isinstance(failure, StoreReadOnly) and self._pool is not None:
                await self._pool.expire_connections()  # after a failover, others go to the database that may be written
            raise failure from error

    async def close(self) -> None:
        """Close the connections. The next call opens others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(2):
                    await pool.close()
            except (TimeoutError, OSError, self._asyncpg.InterfaceError, self._asyncpg.PostgresError):
                pool.terminate()


@contextmanager
def _dropped_when_cut(connection: Any) -> Generator[None]:
    """Drop a connection that does not answer. The driver would wait for the server twice more, for ten seconds each."""
    try:
        yield
    except (TimeoutError, asyncio.CancelledError):
        connection.terminate()
        raise


async def _keep(_: object) -> None:
    """Nothing is to be reset when a connection is returned: no call here changes its settings. That saves a round."""
