"""What a server allows, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

OnDisconnect: TypeAlias = Literal["cancel", "continue"]

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of a server. All times are in seconds, all sizes in bytes.

    max_body             the largest request body
    max_runs_per_key     runs of one key that have not ended
    max_runs             runs of all keys that have not ended
    max_streams_per_key  open event streams of one key
    max_streams          open event streams of all keys
    keep_runs            ended runs that one key can still look at; the oldest go first
    keep_bytes           what the ended runs of all keys may hold in memory
    keep_sessions        conversations that one key may have in memory
    log_bytes            what one run's event log may hold; the oldest events go first
    heartbeat            between two comments on a silent event stream
    send_timeout         how long an event stream waits for a client that reads nothing before it is dropped
    on_disconnect        what a run without a reader does, unless it says so itself
    disconnect_grace     how long a run with `on_disconnect="cancel"` goes on without any reader
    max_wait             the longest `?wait=`
    header_timeout       how long a client may take to send a request's head
    body_timeout         how long it may take to send the body
    drain                from SIGTERM to the end of the last run
    cors_origins         other origins whose pages may use this server
    receipts             a file that gets the receipt of every run, a line of JSON each
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
