"""The limits and timeouts of a server."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Final, Literal, TypeAlias, get_args

from ..errors import ConfigurationError

OnDisconnect: TypeAlias = Literal["cancel", "continue"]

MIB: Final = 1024 * 1024
# The least number of seconds with which a server can work; every other number may be 0.
_LEAST: Final = {"heartbeat": 0.001, "send_timeout": 0.001, "header_timeout": 0.001, "body_timeout": 0.001}


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of a server. All times are in seconds, all sizes in bytes.

    Raises `ConfigurationError` for a value that makes no sense.

    max_body             the largest request body
    max_runs_per_key     runs of one key that have not ended
    max_runs             runs of all keys that have not ended
    max_streams_per_key  open event streams of one key
    max_streams          open event streams of all keys
    keep_runs            ended runs that are kept for one key; the oldest are deleted first
    keep_bytes           memory for the event logs of all ended runs
    keep_sessions        sessions that are kept in memory for one key
    log_bytes            size of one run's event log; the oldest events are dropped first
    heartbeat            time between two comments on a silent event stream
    send_timeout         how long a client may read nothing before its event stream is closed
    on_disconnect        what happens to a run without a reader, unless its request says otherwise
    disconnect_grace     how long a run with `on_disconnect="cancel"` continues without a reader
    max_wait             the longest `?wait=`
    header_timeout       how long a client may take to send a request's head
    body_timeout         how long it may take to send the body
    drain                time from SIGTERM to the end of the last run
    cors_origins         other origins from which requests are allowed
    receipts             a file that gets the receipt of every run, a line of JSON each
    fleet                runs are queued in Postgres for workers, and shared with the other replicas
    operators            the names of the keys that may read the usage of all keys
    """

    max_body: int = 8 * MIB
    max_runs_per_key: int = 100
    max_runs: int = 2000
    max_streams_per_key: int = 200
    max_streams: int = 4000
    keep_runs: int = 1000
    keep_bytes: int = 256 * MIB
    keep_sessions: int = 1000
    log_bytes: int = MIB
    heartbeat: float = 15.0
    send_timeout: float = 60.0
    on_disconnect: OnDisconnect = "continue"
    disconnect_grace: float = 10.0
    max_wait: float = 60.0
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    drain: float = 30.0
    cors_origins: tuple[str, ...] = ()
    receipts: Path | None = None
    fleet: bool = False
    operators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in fields(self):
            default: object = each.default
            value, kind, least = getattr(self, each.name), type(default), _LEAST.get(each.name, 0)
            most = TIMEOUT_MAX if kind is float else float("inf")
            todo = ""
            if each.name == "on_disconnect" and value not in get_args(OnDisconnect):
                todo = f"Use one of: {', '.join(get_args(OnDisconnect))}."
            elif kind is tuple and isinstance(value, str):
                todo = "Use a tuple of texts."
            elif kind in (int, float) and not (_is_number(value, kind) and least <= value <= most):
                todo = f"Use a {'whole ' if kind is int else ''}number from {least:g} up."
            if todo:
                raise ConfigurationError(f"Settings({each.name}={value!r}) makes no sense.", todo=todo)


def _is_number(value: object, kind: type[object]) -> bool:
    return isinstance(value, (int, kind)) and not isinstance(value, bool)
