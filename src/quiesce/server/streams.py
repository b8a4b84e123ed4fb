"""Server-sent events: the events of a run, and the changes in the list of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .endpoint import ApiRequest
from .problems import Problem
from .registry import ServedRun
from .services import Services

# The key in the scope's state of a function that aborts the connection. Closing one waits for a client that does not
# read, for ever.
ABORT: Final = "quiesce.abort"


class EventResponse(EventSourceResponse):
    """Sends `frames` until they end or the client disconnects. The stream counts against the owner's quota.

    A slow client delays no other one. A client that has accepted nothing for `send_timeout` is disconnected.
    """

    def __init__(
        self, services: Services, owner: str, frames: AsyncIterator[bytes], on_close: Callable[[], None]
    ) -> None:
        services.quotas.stream_opened(owner)
        self._quotas: Final = services.quotas
        self._owner: Final = owner
        self._on_close: Final = on_close
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            frames,
            ping=services.settings.heartbeat,
            ping_message_factory=lambda: ServerSentEvent(comment="ping"),
            send_timeout=services.settings.send_timeout,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            abort = scope.get("state", {}).get(ABORT)
            if abort is not None:
                abort()
        finally:
            self._quotas.stream_closed(self._owner)
            self._on_close()

    async def _listen_for_exit_signal_with_grace(self) -> None:
        # The library would poll for the server's exit and then cut the stream. Here the drain ends the runs, and each
        # stream ends after its last event.
        await anyio.sleep_forever()


async def stream_events(request: ApiRequest) -> Response:
    """`GET /runs/{id}/events`. A browser's `EventSource` comes back after the last event; 204 tells it not to."""
    run, number = request.run, event_number(request)
    if number and run.log.is_over(number):
        return Response(status_code=204)
    frames = _frames(run, run.log.begin(number))
    response = EventResponse(request.services, request.owner, frames, run.readers.disconnected)
    run.readers.connected()
    return response


async def _frames(run: ServedRun, after: int) -> AsyncIterator[bytes]:
    while (batch := await run.log.read(after)) is not None:
        after, frames = batch
        yield frames


async def stream_changes(request: ApiRequest) -> EventResponse:
    """`GET /events`: the changes in the list of runs. A position that is unknown here gets the whole list."""
    services = request.services
    frames = services.run_lists.read(request.owner, _position(request) or "", follow=not services.quotas.draining)
    return EventResponse(services, request.owner, frames, lambda: None)


def _position(request: ApiRequest) -> str | None:
    """The id of the last event that the client has seen."""
    return request.http.headers.get("last-event-id") or request.http.query_params.get("after")


def event_number(request: ApiRequest) -> int:
    """The number of the last event that the client has seen. Raises `Problem`."""
    position = _position(request) or "0"
    if not (position.isascii() and position.isdigit() and len(position) <= 18):
        raise Problem(
            422, "bad_event_id", "Last-Event-ID must be the number of an event.", todo="Leave it out to read all."
        )
    return int(position)
