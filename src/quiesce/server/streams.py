"""A run's events over HTTP, as server-sent events; and the changes in the list of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from .endpoint import Call
from .problems import Problem
from .registry import Record, RunRegistry

# Where the protocol leaves the way to cut a connection whose client does not read: closing would wait for it for ever.
ABORT: Final = "quiesce.abort"


class EventResponse(EventSourceResponse):
    """Sends `frames` until they end or the client goes. Its reader is counted for as long as it lasts.

    A client that reads slowly delays nobody else: it is served at its own pace, and dropped when it has accepted
    nothing for a while.
    """

    def __init__(
        self, desk: RunRegistry, owner: str, frames: AsyncIterator[bytes], on_close: Callable[[], None]
    ) -> None:
        desk.stream_opened(owner)
        self._desk: Final = desk
        self._owner: Final = owner
        self._on_close: Final = on_close
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            frames,
            ping=desk.settings.heartbeat,
            ping_message_factory=_ping,
            send_timeout=desk.settings.send_timeout,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream until it or the client ends."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            abort = scope.get("state", {}).get(ABORT)
            if abort is not None:
                abort()
        finally:
            self._desk.stream_closed(self._owner)
            self._on_close()

    async def _listen_for_exit_signal_with_grace(self) -> None:
        # The library would look every half second whether the server is to exit, and then cut the stream. Here the
        # drain ends the runs, and with them their streams, after the last event.
        await anyio.sleep_forever()


def _ping() -> ServerSentEvent:
    return ServerSentEvent(comment="ping")


async def stream_events(call: Call) -> EventResponse:
    """`GET /runs/{id}/events`."""
    record = call.record
    frames = _frames(record, record.log.begin(_resume_after(call)))
    response = EventResponse(call.desk, call.owner, frames, record.reader_left)
    record.reader_came()
    return response


async def _frames(record: Record, after: int) -> AsyncIterator[bytes]:
    while (batch := await record.log.read(after)) is not None:
        after, frames = batch
        yield frames


async def stream_changes(call: Call) -> EventResponse:
    """`GET /events`: what changes in the list of runs. A place that makes no sense here gets the whole list."""
    return EventResponse(call.desk, call.owner, call.desk.changes(call.owner, _place(call) or ""), lambda: None)


def _place(call: Call) -> str | None:
    """Where the client says that it was."""
    return call.request.headers.get("last-event-id") or call.request.query_params.get("after")


def _resume_after(call: Call) -> int:
    given = _place(call) or "0"
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise Problem(
            422, "bad_event_id", "Last-Event-ID must be the number of an event.", todo="Leave it out to read all."
        )
    return int(given)
