"""Messages on a byte stream: eight bytes of length, then the message.

From the host to its processes a message is a pickle. From there to the host it is JSON: a process that runs the code of
a tool must not be able to run code in the host, which reading a pickle would allow.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

_HEADER: Final = struct.Struct("!Q")
# A longer frame is not one that a worker of ours sends.
LONGEST: Final = 1 << 30


def encode(message: object) -> bytes:
    """Encode a frame for a process of ours, with pickle. Raises what pickle raises."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


def encode_plain(message: object) -> bytes:
    """Encode a frame for the host, as JSON. Raises `ValueError` when it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > LONGEST:
        raise ValueError(f"it has {len(body):,} bytes")
    return _HEADER.pack(len(body)) + body


class PlainDecoder:
    """Puts frames for the host together from the pieces in which they arrive.

    A frame that is never completed is never seen.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete with this piece. Raises `ValueError` for what is no message."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length = _HEADER.unpack_from(self._buffer)[0]
            if length > LONGEST:
                self._buffer.clear()
                raise ValueError(f"a message of {length:,} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[_HEADER.size : end])
            del self._buffer[:end]
            yield json.loads(body)


def receive(channel: socket.socket) -> Any:
    """Wait for one frame of the host. Raises `EOFError` when it is gone."""
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
