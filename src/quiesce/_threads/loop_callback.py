"""Callbacks of an event loop in which a Ctrl-C may be raised.

Without a handler, Python raises it in the code that runs. In a task, the task ends with it. In a callback, it leaves
the loop and no task learns of it: a task that waits for the effect of the callback would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def call_soon_anywhere(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    """`call_soon_threadsafe`, without waking the loop where it is awake: in a step of one of its own tasks.

    A signal handler may call this too. Between two steps the loop may be about to wait, and has to be woken.
    Raises `RuntimeError` when the loop has closed.
    """
    try:
        is_awake = asyncio.current_task() is not None and asyncio.get_running_loop() is loop
    except RuntimeError:  # no loop runs in this thread
        is_awake = False
    if is_awake:
        loop.call_soon(callback, *arguments)
    else:
        loop.call_soon_threadsafe(callback, *arguments)


def made_again(callback: Callable[..., None]) -> Callable[..., None]:
    """The callback, which may be called twice: after a Ctrl-C in it, it is called again, and then that is raised."""

    def call(*arguments: Any) -> None:
        try:
            callback(*arguments)
        except KeyboardInterrupt:
            callback(*arguments)
            raise

    return call


def stopping(callback: Callable[[], None], stop: Callable[[BaseException], None]) -> Callable[[], None]:
    """The callback, which may not be called twice: after a Ctrl-C in it, `stop` is called, and then that is raised."""

    def call() -> None:
        try:
            callback()
        except (KeyboardInterrupt, SystemExit) as error:
            stop(error)
            raise

    return call
