"""One end of a socket or pipe on an event loop: reads are handed on, writes never block."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

_PIECE: Final = 65536


class StreamEnd:
    """A non-blocking handle that can move from loop to loop. For the thread of the loop that it is attached to."""

    def __init__(self, end: socket.socket | int) -> None:
        self._end: Final = end
        self._handle: Final = end if isinstance(end, int) else end.fileno()
        os.set_blocking(self._handle, False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_data: Callable[[bytes], None] | None = None
        self._backlog: Final = bytearray()
        self._on_written: Callable[[], None] | None = None
        self._writing = False
        self._last = False
        self.closed = False
        self.broken = False
        """Whether the reader at the other end is gone."""
        self.at_end = False

    @property
    def handle(self) -> int:
        """The number of the file, socket or pipe."""
        return self._handle

    def attach(self, loop: asyncio.AbstractEventLoop, on_data: Callable[[bytes], None]) -> None:
        """Hand what arrives to `on_data`, on `loop`; empty bytes mean the end."""
        self._loop, self._on_data = loop, on_data
        if not self.at_end:
            loop.add_reader(self._handle, self._readable)

    def attach_writer(self, loop: asyncio.AbstractEventLoop, on_written: Callable[[], None] | None = None) -> None:
        """Use `loop` to write what does not fit at once; `on_written` is called when nothing is pending any more."""
        self._loop, self._on_written = loop, on_written

    def pause(self) -> None:
        """Read nothing until `resume`, so that the writer at the other end has to wait."""
        if self._loop is not None and not self.closed and not self.at_end:
            self._loop.remove_reader(self._handle)

    def resume(self) -> None:
        """Read again after `pause`."""
        if self._loop is not None and not self.closed and not self.at_end:
            self._loop.add_reader(self._handle, self._readable)

    def detach(self) -> None:
        """Leave the loop; nothing is read until the next `attach`."""
        loop, self._loop, self._on_data = self._loop, None, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._handle)
            if self._writing:
                loop.remove_writer(self._handle)
        self._writing = False

    def close(self) -> None:
        """Leave the loop and close the handle."""
        if self.closed:
            return
        self.detach()
        self.closed = True
        if isinstance(self._end, int):
            os.close(self._end)
        else:
            self._end.close()

    def drop(self) -> None:
        """Close the handle and touch no loop. For a forked child, whose loop shares its selector with the parent's."""
        if not self.closed:
            self.closed = True
            os.close(self._end if isinstance(self._end, int) else self._end.detach())

    # --- Reading ------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        data = self._read()
        if data is not None and self._on_data is not None:
            self._on_data(data)

    def drain(self, on_data: Callable[[bytes], None]) -> None:
        """Hand on everything that has arrived, now."""
        while not self.at_end and not self.closed:
            data = self._read()
            if data is None:
                return
            on_data(data)

    def _read(self) -> bytes | None:
        try:
            data = os.read(self._handle, _PIECE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            self.at_end = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._handle)
        return data

    # --- Writing ------------------------------------------------------------------------------------------------

    def post(self, data: bytes, *, last: bool = False) -> None:
        """Write, now or as soon as there is room; `last` closes the handle after that. A dead reader is no error.

        After `close` nothing is written: the handle may be the number of another file by now.
        """
        if self.closed:
            return
        self._last = self._last or last
        self._backlog.extend(data)
        self._write()

    @property
    def pending(self) -> bool:
        """Whether posted data is still waiting to be written."""
        return bool(self._backlog)

    def _write(self) -> None:
        try:
            while self._backlog:
                del self._backlog[: os.write(self._handle, memoryview(self._backlog)[:_PIECE].tobytes())]
        except (BlockingIOError, InterruptedError):
            if not self._writing and self._loop is not None:
                self._writing = True
                self._loop.add_writer(self._handle, self._write)
            return
        except OSError:
            self.broken = True
            self._backlog.clear()
        if self._writing and self._loop is not None:
            self._writing = False
            self._loop.remove_writer(self._handle)
        if self._on_written is not None:
            self._on_written()
        if self._last:
            self.close()
