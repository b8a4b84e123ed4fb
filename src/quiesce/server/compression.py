"""gzip for JSON answers, never for event streams. The console's files are compressed once, in `static_files`.

BREACH guesses a secret that an answer repeats beside text of the attacker, over many requests that the victim's browser
sends. Here answers repeat no key, a key comes in a header that no other site can send, and requests from pages of other
sites are refused; so compressed answers tell an observer nothing more than their length.
"""

from __future__ import annotations

import gzip
from typing import Final

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Below this, gzip saves no packet. Above the other, it would hold the event loop: it is done in a thread.
_LEAST: Final = 1024
_IN_THREAD: Final = 32 * 1024
_LEVEL: Final = 5


class Compression:
    """Middleware that compresses what a client can read compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; the answer is compressed when its whole body comes at once."""
        if scope["type"] != "http" or not accepts_gzip(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _may_compress(message):
                start = message  # its length is known with the body
                return
            if start is not None:
                head, start = start, None
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    message = await _compress(head, message)
                await send(head)
            await send(message)

        await self._app(scope, receive, send_compressed)


def accepts_gzip(scope: Scope) -> bool:
    """Whether the client accepts gzip. One that names it only to refuse it (`gzip;q=0`) does not."""
    accepted = Headers(scope=scope).get("accept-encoding", "").lower().replace(" ", "").split(",")
    weights = {name: weight for name, _, weight in (each.partition(";q=") for each in accepted)}
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.strip("0.") != "" or not weight


def _may_compress(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0].strip()
    return kind == "application/json" and "content-encoding" not in headers and start["status"] not in (204, 206, 304)


async def _compress(start: Message, body: Message) -> Message:
    """The body compressed, and the head changed to say so."""
    headers = MutableHeaders(scope=start)
    headers.add_vary_header("Accept-Encoding")
    whole: bytes = body.get("body", b"")
    if len(whole) < _LEAST:
        return body
    small = await anyio.to_thread.run_sync(squeeze, whole) if len(whole) > _IN_THREAD else squeeze(whole)
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(small))
    return {**body, "body": small}


def squeeze(whole: bytes) -> bytes:
    """The bytes in gzip, without a time stamp: the same bytes for the same answer."""
    return gzip.compress(whole, _LEVEL, mtime=0)
