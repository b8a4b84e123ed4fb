"""gzip for answers that are complete: JSON and the files of the console, never event streams.

BREACH guesses a secret that an answer repeats beside text of the attacker, over many requests that the victim's browser
sends. Here answers repeat no key, a key comes in a header that no other site can send, and requests from pages of other
sites are refused; so compressed answers tell an observer nothing more than their length.
"""

from __future__ import annotations

import gzip
import re
from typing import Any, Final

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Below this, gzip saves no packet. Above the other, it would hold the event loop: it is done in a thread.
_LEAST: Final = 1024
_IN_THREAD: Final = 32 * 1024
_LEVEL: Final = 5
_ZERO: Final = re.compile(r"q=0(\.0*)?\s*$")
_KINDS: Final = ("application/json", "text/html", "text/css", "text/javascript", "image/svg+xml")


class Compression:
    """Middleware that compresses what a client can read compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; the answer is compressed when its whole body comes at once."""
        if scope["type"] != "http" or not _takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
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


def _takes_gzip(accepted: str) -> bool:
    """Whether a client takes gzip: it is named, and not with the weight 0."""
    names = [each.partition(";") for each in accepted.lower().split(",")]
    return any(name.strip() == "gzip" and not _ZERO.search(weight) for name, _, weight in names)


def _may_compress(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0].strip()
    return kind in _KINDS and "content-encoding" not in headers and start["status"] not in (204, 206, 304)


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
    etag: Any = headers.get("etag")
    if etag is not None and not etag.startswith("W/"):
        headers["ETag"] = f"W/{etag}"  # not the same bytes
    return {**body, "body": small}


def squeeze(whole: bytes) -> bytes:
    """The bytes in gzip, without a time stamp: the same bytes for the same answer."""
    return gzip.compress(whole, _LEVEL, mtime=0)
