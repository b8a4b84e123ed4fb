"""The keys of the demo: Esc while the agent runs, a line of text when it rests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

try:
    import termios
    import tty
except ImportError:  # Windows: the demo then runs by itself
    termios = tty = None

_ESC: Final = b"\x1b"


def has_keyboard() -> bool:
    """Whether standard input and output are a terminal."""
    return termios is not None and sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def on_escape(pressed: Callable[[], object]) -> Generator[None]:
    """Call `pressed` for each Esc while the block runs. Keys are neither echoed nor kept; Ctrl-C stays a signal."""
    assert termios is not None
    assert tty is not None
    loop = asyncio.get_running_loop()
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        # An arrow key is Esc and more in one go; Esc alone is the key.
        if os.read(keyboard, 64).strip(_ESC) == b"":
            pressed()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)


async def read_line() -> str | None:
    """Wait for the next typed line, without blocking the loop; None at the end of the input."""
    loop = asyncio.get_running_loop()
    keyboard = sys.stdin.fileno()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(keyboard, 4096))

    loop.add_reader(keyboard, read)
    try:
        line = await typed
    finally:
        loop.remove_reader(keyboard)
    return line.decode(errors="replace").strip() if line else None
