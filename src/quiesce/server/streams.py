"""A run's events over HTTP, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from .desk import Desk, Record
from .endpoint import Call
from .problem import Problem

# Where the protocol leaves the way to cut a connection whose client does not read: closing would wait for it for ever.
ABORT: Final = "quiesce.abort"


class EventResponse(EventSourceResponse):
    """Sends the events after number `after`, and ends after the last. Its reader is counted for as long as it lasts.

    A client that reads slowly delays nobody else: it is served from the log at its own pace, and dropped when it has
    accepted nothing for a while.
    """

    def __init__(self, desk: Desk, record: Record, after: int) -> None:
        desk.stream_opened(record)
        self._desk: Final = desk
        self._record: Final = record
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            _frames(record, after),
            ping=desk.settings.heartbeat,
            ping_message_factory=_ping,
            send_timeout=desk.settings.send_timeout,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until the run or the client ends it."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            abort = scope.get("state", {}).get(ABORT)
            if abort is not None:
                abort()
        finally:
            self._desk.stream_closed(self._record)

    async def _listen_for_exit_signal_with_grace(self) -> None:
        # The library would look every half second whether the server is to exit, and then cut the stream. Here the
        # drain ends the runs, and with them their streams, after the last event.
        await anyio.sleep_forever()


async def _frames(record: Record, after: int) -> AsyncIterator[bytes]:
    while (batch := await record.log.read(after)) is not None:
        after, frames = batch
        yield frames


def _ping() -> ServerSentEvent:
    return ServerSentEvent(comment="ping")


async def stream_events(call: Call) -> EventResponse:
    """`GET /runs/{id}/events`."""
    record = call.record
    return EventResponse(call.desk, record, record.log.begin(_resume_after(call)))


def _resume_after(call: Call) -> int:
    given = call.request.headers.get("last-event-id") or call.request.query_params.get("after") or "0"
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise Problem(
            422, "bad_event_id", "Last-Event-ID must be the number of an event.", todo="Leave it out to read all."
        )
    return int(given)
