"""One SQL for two databases: operations are written once, and a dialect supplies the few words that differ.

An operation is a generator. It yields statements and gets their rows back, so that it runs in a thread on a blocking
connection as well as on an asynchronous one. Its caller gives it a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

_T = TypeVar("_T")

Rows: TypeAlias = Sequence[tuple[Any, ...]]

# read      changes nothing
# relaxed   need not survive a power cut or a crash of the database: renewals, releases and queued prompts
# durable   survives what the store promises to survive: all that is written, and new leases (no fence is given twice)
Access: TypeAlias = Literal["read", "relaxed", "durable"]


class Statement(NamedTuple):
    """SQL with `$1`, `$2` ... for its parameters, and `{words}` of the dialect, among them the names of the tables."""

    text: str
    parameters: Sequence[Any] = ()


class Repeated(NamedTuple):
    """One statement for each of many rows of parameters; it returns nothing."""

    text: str
    rows: Rows


class Notify(NamedTuple):
    """When the transaction is committed, subscribers of the session are notified, in every process."""

    session: str


OperationStep: TypeAlias = Statement | Repeated | Notify
Operation: TypeAlias = Generator[OperationStep, Rows, _T]

TABLES: Final = ("sessions", "messages", "runs", "journal", "session_values", "store_values", "letters")
# The channel of Postgres' notifications; the payload is the name of the session.
CHANNEL: Final = "quiesce"

_SQLITE: Final = {**{table: table for table in TABLES}, "now": "quiesce_now()", "locked": ""}
_POSTGRES: Final = {
    **{table: f"quiesce_{table}" for table in TABLES},
    "now": "extract(epoch FROM clock_timestamp())::float8",  # the server's clock: those of many machines differ
    "locked": " FOR UPDATE",
}
_PARAMETER: Final = re.compile(r"\$(\d+)")


@cache
def for_postgres(text: str) -> str:
    """A statement's text as Postgres takes it."""
    return text.format(**_POSTGRES)


@cache
def for_sqlite(text: str) -> tuple[str, tuple[int, ...] | None]:
    """A statement's text as SQLite takes it, and the order of its parameters; None when that is as they come."""
    text = text.format(**_SQLITE)
    order = tuple(int(number) - 1 for number in _PARAMETER.findall(text))
    return _PARAMETER.sub("?", text), None if order == tuple(range(len(order))) else order
