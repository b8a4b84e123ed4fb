"""Pickled objects on a byte stream: eight bytes of length, then the object."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

_HEADER: Final = struct.Struct("!Q")


def encode(message: object) -> bytes:
    """One frame. Raises whatever pickle raises."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Puts frames together from the pieces in which they arrive. A frame that is never completed is never seen."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete with this piece."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[_HEADER.size : end])
            del self._buffer[:end]
            yield pickle.loads(body)


def receive(channel: socket.socket) -> Any:
    """Wait for one frame. Raises `EOFError` when the other side is gone."""
    (length,) = _HEADER.unpack(_exactly(channel, _HEADER.size))
    return pickle.loads(_exactly(channel, length))


def _exactly(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = channel.recv_into(view[filled:])
        if not count:
            raise EOFError
        filled += count
    return data
