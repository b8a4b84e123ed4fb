"""Bounds the body of a response that is an error: a provider that fails may send one without end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

# How much of an error's body is read.
_LONGEST_ERROR: Final = 64 * 1024
# The same for a body that is compressed, though that was not asked for: a byte may stand for a thousand.
_LONGEST_PACKED_ERROR: Final = 4 * 1024


async def bound_error(response: httpx2.Response) -> None:
    """Bound the body of a response that is an error, before anything reads it whole."""
    if response.is_error and isinstance(response.stream, httpx2.AsyncByteStream):
        most = _LONGEST_PACKED_ERROR if "content-encoding" in response.headers else _LONGEST_ERROR
        response.stream = _BoundedBody(response.stream, most)


class _BoundedBody(httpx2.AsyncByteStream):
    """Reads only the beginning of a body: enough for an error message."""

    def __init__(self, whole: httpx2.AsyncByteStream, most: int) -> None:
        self._whole: Final = whole
        self._most: Final = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for data in self._whole:
            yield data[:left]
            left -= len(data)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._whole.aclose()
