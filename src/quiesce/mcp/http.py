"""An HTTP client for MCP servers in which no message waits for another, and a failure concerns one request only.

The SDK's transport sends notifications one after the other, waits for the response to each, and fails with all requests
in flight when one request cannot be sent. So this client sends each cancellation in a task of its own, and makes an
error response where the server gives none.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import httpx2

from .._threads.tasks import start_task
from ..tools.policy import FINAL_GRACE
from .stdio import NO_ANSWER

_log: Final = logging.getLogger("quiesce")

# The seconds that a server may take to accept a cancellation, or to send the body of an error response.
_NOTIFY_TIMEOUT: Final = 5.0
_INTERNAL_ERROR: Final = -32603
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


class ServerClient(httpx2.AsyncClient):
    """An HTTP client for one MCP server. `on_expired` is called when the server does not know the session any more."""

    def __init__(self, headers: Mapping[str, str], on_expired: Callable[[], None]) -> None:
        # No read timeout and no limit of connections: a tool may take long, and a stop or a deadline ends it.
        timeout = httpx2.Timeout(30.0, read=None, pool=None)
        super().__init__(headers=headers, timeout=timeout, limits=httpx2.Limits(max_connections=None))
        self._on_expired: Final = on_expired
        self._expired = False
        self._notifications: Final[set[asyncio.Task[None]]] = set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. If it cannot be sent, or is refused without a message, the response is an MCP error."""
        if request.method == "DELETE" and self._expired:
            return httpx2.Response(204, request=request)  # there is no session to end
        if request.method != "POST":
            return await super().send(request, **options)
        message: dict[str, Any] = json.loads(request.content)
        if message.get("method") == "notifications/cancelled":
            self._notify_cancelled(request)
            return httpx2.Response(202, request=request)
        try:
            response = await super().send(request, **options)
            if "application/json" in response.headers.get("content-type", ""):
                await response.aread()
        except httpx2.TransportError as error:
            return _error_response(request, message, 503, f"cannot be reached ({type(error).__name__})")
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            self._expired = True
            self._on_expired()
        return response if response.status_code < _BAD_REQUEST else await _with_error(response, message)

    def _notify_cancelled(self, request: httpx2.Request) -> None:
        notification = start_task(self._deliver(request), name="quiesce mcp cancellation")
        self._notifications.add(notification)
        notification.add_done_callback(self._notifications.discard)

    async def _deliver(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(_NOTIFY_TIMEOUT):
                await super().send(request)
        except (httpx2.HTTPError, TimeoutError) as error:
            _log.debug("The cancellation of a call could not be sent to its MCP server: %s", type(error).__name__)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Close all connections. Cancellations that are being sent have a moment to leave."""
        notifications = tuple(self._notifications)
        try:
            if notifications:
                await asyncio.wait(notifications, timeout=FINAL_GRACE)
        finally:
            for each in notifications:
                each.cancel()
            await super().__aexit__(exc_type, exc_value, traceback)


async def _with_error(response: httpx2.Response, message: dict[str, Any]) -> httpx2.Response:
    """The response, if it has an MCP error; else a response with one."""
    with suppress(httpx2.HTTPError, TimeoutError, ValueError, AttributeError):
        async with asyncio.timeout(_NOTIFY_TIMEOUT):
            body: Any = json.loads(await response.aread())
        if body.get("error", {}).get("message"):
            return response
    await response.aclose()
    status = f"answered {response.status_code} {response.reason_phrase}".strip()
    return _error_response(response.request, message, response.status_code, status)


def _error_response(request: httpx2.Request, message: dict[str, Any], status: int, why: str) -> httpx2.Response:
    error = {"code": _INTERNAL_ERROR, "message": why, "data": NO_ANSWER}
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
    return httpx2.Response(status, json=answer, request=request)
