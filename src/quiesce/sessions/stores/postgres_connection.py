"""Connections to Postgres, for stores and for fleets: how they are opened and migrated, and what their errors mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

from ...errors import (
    ConfigurationError,
    MissingExtra,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

# How long to wait for a connection, and for the answer to one statement.
CONNECT_TIMEOUT: Final = 5.0
STATEMENT_TIMEOUT: Final = 10.0
# A host that is gone says nothing: without these the server keeps its connections, and what they lock, for two hours.
_NOTICE_LOST_HOST: Final = (
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = 60000"
)

_HOST: Final = re.compile(r"(\[[^@\[\]]*\]|[^:@\[\]]*)(:\d+)?")


def load_driver(user: str) -> Any:
    """The module `asyncpg`. Raises `MissingExtra`, which names `user`."""
    try:
        import asyncpg
    except ImportError:
        raise MissingExtra(user, "asyncpg", "postgres") from None
    return asyncpg


async def connect(url: str, idle_timeout: float) -> Any:
    """A connection, configured. Raises what the driver raises."""
    connection = await load_driver("Postgres").connect(url, timeout=CONNECT_TIMEOUT, command_timeout=STATEMENT_TIMEOUT)
    try:
        await configure(connection, idle_timeout)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def configure(connection: Any, idle_timeout: float) -> None:
    """Set what the server does when this process is gone, or frozen in a transaction for `idle_timeout` seconds."""
    timeout = f"SET idle_in_transaction_session_timeout = {idle_timeout * 1000:.0f}"
    await connection.execute(f"{timeout}; {_NOTICE_LOST_HOST}")


async def migrate(connection: Any, version_table: str, migrations: Sequence[Sequence[str]]) -> int:
    """Make the migrations that the tables lack; gives the version that they had, which may be a newer one.

    In a transaction, under a lock: two processes must not migrate at once.
    """
    await connection.execute(f"CREATE TABLE IF NOT EXISTS {version_table} (version INTEGER NOT NULL)")
    version: int = await connection.fetchval(f"SELECT max(version) FROM {version_table}") or 0
    for number, statements in enumerate(migrations[version:], version + 1):
        for statement in statements:
            await connection.execute(statement)
        await connection.execute(f"INSERT INTO {version_table} (version) VALUES ($1)", number)
    return version


def explain(error: Exception, url: str) -> StoreError | None:
    """The `StoreError` for an error of the driver or of the network; None for any other error."""
    code = str(getattr(error, "sqlstate", None) or "")
    text = f"{url}: {error}."
    match code[:2], code:
        case _, "53100" | "54000":
            return StoreFull(detail=text)
        case _, "25006":
            todo = "Check that it is not a standby. During a failover, prompt again when that is over."
            read_only = StoreReadOnly("The database is read-only.", todo=todo, detail=text)
            read_only.retryable = True
            return read_only
        case _, "42501":
            return StoreReadOnly(detail=text)
        case "08" | "25" | "40" | "53" | "55" | "57", _:
            return StoreUnavailable(detail=text)
        case "XX", _:
            return StoreDamaged(detail=text)
        case "", _ if isinstance(error, OSError | TimeoutError) or type(error).__module__.startswith("asyncpg"):
            return StoreUnavailable(detail=f"{url}: {type(error).__name__}: {error}.")
        case _:
            return StoreError(detail=text) if code else None


def checked_address(address: str) -> str:
    """The address, if it can be read. Raises `ConfigurationError`, which does not show it.

    Usually the password has a character that has a meaning in addresses. So it is not known where the password ends.
    """
    try:
        parts = urlsplit(address)
        if parts.query:
            parse_qs(parts.query, strict_parsing=True)
        is_whole = not parts.fragment and ("@" in parts.netloc or "@" not in parts.path)
        can_be_read = is_whole and all(map(_HOST.fullmatch, parts.netloc.split("@", 1)[-1].split(",")))
    except ValueError:
        can_be_read = False
    if not can_be_read:
        raise ConfigurationError(
            "The address of the database cannot be read.",
            todo="In its password, write @ as %40, # as %23, / as %2F, ? as %3F, [ as %5B and ] as %5D.",
        )
    return address


def public_url(address: str) -> str:
    """An address without its password."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")
    user = host[0].partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}{host[1]}{host[2]}", query="", fragment=""))
