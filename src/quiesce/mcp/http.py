"""How a streamable HTTP server is reached: no message waits for another, and a failure is an answer to its request.

The SDK's transport sends notifications one after the other, waits for the answer to each, and falls with all that is in
flight when one request cannot be sent. So this client sends the word that a call is cancelled on its own, without
anybody waiting for it, and answers in the server's place where there is no answer.
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

from ..tools.policy import FINAL_GRACE
from .stdio import NO_ANSWER

_log: Final = logging.getLogger("quiesce")

# How long a server may take to hear that a call is cancelled, or to say what it refuses.
_HEARING: Final = 5.0
_INTERNAL_ERROR: Final = -32603
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


class ServerClient(httpx2.AsyncClient):
    """An HTTP client for one MCP server. `on_forgotten` is called when the server knows the session no more."""

    def __init__(self, headers: Mapping[str, str], on_forgotten: Callable[[], None]) -> None:
        # A tool may take its time, and any number may run at once: a stop or a deadline ends them, not a limit here.
        timeout = httpx2.Timeout(30.0, read=None, pool=None)
        super().__init__(headers=headers, timeout=timeout, limits=httpx2.Limits(max_connections=None))
        self._on_forgotten: Final = on_forgotten
        self._forgotten = False
        self._telling: Final[set[asyncio.Task[None]]] = set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. One that cannot be sent, or is refused, is answered with an error in the protocol's words."""
        if request.method == "DELETE" and self._forgotten:
            return httpx2.Response(204, request=request)  # there is no session to end
        if request.method != "POST":
            return await super().send(request, **options)
        message: dict[str, Any] = json.loads(request.content)
        if message.get("method") == "notifications/cancelled":
            self._tell(request)
            return httpx2.Response(202, request=request)
        try:
            response = await super().send(request, **options)
            if "application/json" in response.headers.get("content-type", ""):
                await response.aread()
        except httpx2.TransportError as error:
            return _refusal(request, message, 503, f"cannot be reached ({type(error).__name__})")
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            self._forgotten = True
            self._on_forgotten()
        return response if response.status_code < _BAD_REQUEST else await _explained(response, message)

    def _tell(self, request: httpx2.Request) -> None:
        telling = asyncio.create_task(self._deliver(request), name="quiesce mcp telling of a cancelled call")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _deliver(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(_HEARING):
                await super().send(request)
        except (httpx2.HTTPError, TimeoutError) as error:
            _log.debug("An MCP server could not be told that a call is cancelled: %s", type(error).__name__)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Close all connections. What was just said may still leave."""
        telling = tuple(self._telling)
        try:
            if telling:
                await asyncio.wait(telling, timeout=FINAL_GRACE)
        finally:
            for each in telling:
                each.cancel()
            await super().__aexit__(exc_type, exc_value, traceback)


async def _explained(response: httpx2.Response, message: dict[str, Any]) -> httpx2.Response:
    """The response, if it says in the protocol's words why the request was refused; else one that does."""
    with suppress(httpx2.HTTPError, TimeoutError, ValueError, AttributeError):
        async with asyncio.timeout(_HEARING):
            body: Any = json.loads(await response.aread())
        if body.get("error", {}).get("message"):
            return response
    await response.aclose()
    status = f"answered {response.status_code} {response.reason_phrase}".strip()
    return _refusal(response.request, message, response.status_code, status)


def _refusal(request: httpx2.Request, message: dict[str, Any], status: int, why: str) -> httpx2.Response:
    error = {"code": _INTERNAL_ERROR, "message": why, "data": NO_ANSWER}
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
    return httpx2.Response(status, json=answer, request=request)
