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
from ..models.wire.certificates import certificates
from ..tools.policy import FINAL_GRACE
from .stdio import NO_ANSWER

_log: Final = logging.getLogger("quiesce")

# The seconds that a server may take to accept a cancellation, or to send the body of an error response.
_NOTIFY_TIMEOUT: Final = 5.0
_INTERNAL_ERROR: Final = -32603
# With these, no byte of the request has left.
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
# The code of the TypeScript SDK for a request that its HTTP transport refuses.
_TRANSPORT_REFUSAL: Final = -32000


class ServerClient(httpx2.AsyncClient):
    """An HTTP client for one MCP server. `on_expired` is called when the server does not know the session any more."""

    def __init__(self, headers: Mapping[str, str], on_expired: Callable[[], None]) -> None:
        # No read timeout and no limit of connections: a tool may take long, and a stop or a deadline ends it.
        timeout = httpx2.Timeout(30.0, read=None, pool=None)
        limits = httpx2.Limits(max_connections=None)
        super().__init__(headers=headers, timeout=timeout, limits=limits, verify=certificates())
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
            return _error_response(request, message, 503, _why(error))
        if response.status_code < _BAD_REQUEST:
            return response
        error = await _error_of(response)
        if "mcp-session-id" in request.headers and _is_unknown_session(response.status_code, error):
            self._expired = True
            self._on_expired()
        if error is None:
            status = f"answered {response.status_code} {response.reason_phrase}".strip()
            return _error_response(request, message, response.status_code, status)
        if error.get("code") == _TRANSPORT_REFUSAL:  # for the SDK's client this would be a closed connection
            return _error_response(request, message, response.status_code, str(error["message"]), data=None)
        return response

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


async def _error_of(response: httpx2.Response) -> dict[str, Any] | None:
    """The MCP error in an HTTP error response, if it has one."""
    with suppress(httpx2.HTTPError, TimeoutError, ValueError, AttributeError):
        async with asyncio.timeout(_NOTIFY_TIMEOUT):
            error: Any = json.loads(await response.aread()).get("error")
        if error.get("message"):
            return error
    await response.aclose()
    return None


def _is_unknown_session(status: int, error: dict[str, Any] | None) -> bool:
    """Whether the server refused a request because it does not know the session: it was restarted, or has forgotten.

    The protocol says 404. Servers on the TypeScript SDK answer 400, with the code that this SDK has for what its
    transport refuses. In both cases the server has done nothing with the request.
    """
    return status == _NOT_FOUND or (
        status == _BAD_REQUEST and error is not None and error.get("code") == _TRANSPORT_REFUSAL
    )


def _why(error: httpx2.TransportError) -> str:
    name = type(error).__name__
    if isinstance(error, _NEVER_SENT):
        return f"cannot be reached ({name})"
    return f"was cut off before it answered ({name}): whether it did what was asked is not known"


def _error_response(
    request: httpx2.Request, message: dict[str, Any], status: int, why: str, *, data: object = NO_ANSWER
) -> httpx2.Response:
    error = {"code": _INTERNAL_ERROR, "message": why, "data": data}
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
    return httpx2.Response(status, json=answer, request=request)
