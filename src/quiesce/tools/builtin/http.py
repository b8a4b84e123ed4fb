"""`http_get`: fetch a page.

Its policy is `cancel` with no grace to speak of: a stop closes the connection, and there is nothing to clean up. A GET
changes nothing on the other side, so a cut one needs no undo and may be made again.
"""

from __future__ import annotations

from typing import Final, cast

from ...errors import ToolError
from ..tool import Tool

_MAX_SIZE: Final = 200_000


def make_http_get(
    *,
    timeout: float = 30.0,
    max_size: int = _MAX_SIZE,
    headers: dict[str, str] | None = None,
    name: str = "http_get",
) -> Tool:
    """A tool that fetches pages. `timeout` is for the whole call; at most `max_size` bytes are read."""

    async def http_get(url: str) -> str:
        """Fetch a page over HTTP and get its text.

        Args:
            url: the address, beginning with http:// or https://
        """
        import httpx2

        if not url.lower().startswith(("http://", "https://")):
            raise ToolError(f"{url!r} is not an http address.")
        try:
            async with (
                httpx2.AsyncClient(follow_redirects=True, timeout=timeout, headers=headers) as client,
                client.stream("GET", url) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) >= max_size:
                        break
                return _told(response.status_code, response.reason_phrase, response.encoding, bytes(body), max_size)
        # The group is what comes of a port that cannot be: that is found late, below the client.
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ExceptionGroup) as error:
            raise ToolError(f"{url} could not be fetched: {_why(error)}") from None

    return Tool(http_get, name=name, on_stop="cancel", grace=0.5, timeout=timeout)


def _why(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return f"{type(error).__name__}: {error}"


def _told(status: int, reason: str, encoding: str | None, body: bytes, max_size: int) -> str:
    text = body[:max_size].decode(encoding or "utf-8", "replace")
    heading = "" if status == 200 else f"[{status} {reason}]\n"
    ending = f"\n[cut after {max_size:,} bytes]" if len(body) >= max_size else ""
    return f"{heading}{text}{ending}"


http_get: Final = make_http_get()
