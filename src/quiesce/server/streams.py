"""Server-sent events: the events of a run, and the changes in the list of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .endpoint import ApiRequest
from .problems import Problem
from .registry import ServedRun
from .services import Services

# The key in the scope's state of a function that aborts the connection. Closing one waits for a client that does not
# read, for ever.
ABORT: Final = "quiesce.abort"

_PING: Final = b": ping\r\n\r\n"
# Proxies pass each event on at once.
_HEADERS: Final = {"Cache-Control": "no-store", "Connection": "keep-alive", "X-Accel-Buffering": "no"}


class EventResponse(Response):
    """Sends `frames` until they end or the client disconnects. The stream counts against the owner's quota.

    A slow client delays no other one. A client that has accepted nothing for `send_timeout` is disconnected. A stream
    has two tasks and few objects, because thousands may be open: each garbage collection looks at every one of them.
    """

    media_type = "text/event-stream"

    def __init__(
        self, services: Services, owner: str, frames: AsyncGenerator[bytes], on_close: Callable[[], None]
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        services.quotas.stream_opened(owner)
        self._services: Final = services
        self._owner: Final = owner
        self._frames: Final = frames
        self._on_close: Final = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client disconnects."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_frames(receive, send)
            await self._send(send, b"", more=False)
        except TimeoutError:
            abort = scope.get("state", {}).get(ABORT)
            if abort is not None:
                abort()
        finally:
            self._services.quotas.stream_closed(self._owner)
            self._on_close()

    async def _send_frames(self, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._frames), anyio.create_task_group() as group:
                group.start_soon(self._ping_until_disconnected, receive, send, group.cancel_scope)
                async for each in self._frames:
                    await self._send(send, each)
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _ping_until_disconnected(self, receive: Receive, send: Send, stream: anyio.CancelScope) -> None:
        while True:
            message: Message | None = None
            with anyio.move_on_after(self._services.settings.heartbeat):
                message = await receive()
            if message is None:
                await self._send(send, _PING)
            elif message["type"] == "http.disconnect":
                stream.cancel()
                return

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        """Raises `TimeoutError` when the client has accepted nothing for too long."""
        with anyio.fail_after(self._services.settings.send_timeout):
            await send({"type": "http.response.body", "body": data, "more_body": more})


async def stream_events(request: ApiRequest) -> Response:
    """`GET /runs/{id}/events`. A browser's `EventSource` comes back after the last event; 204 tells it not to."""
    run, number = request.run, event_number(request)
    if number and run.log.is_over(number):
        return Response(status_code=204)
    frames = _frames(run, run.log.begin(number))
    response = EventResponse(request.services, request.owner, frames, run.readers.disconnected)
    run.readers.connected()
    return response


async def _frames(run: ServedRun, after: int) -> AsyncGenerator[bytes]:
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
