"""Callbacks of an event loop in which a Ctrl-C may be raised.

Without a handler, Python raises it in the code that runs. In a task, the task ends with it. In a callback, it leaves
the loop and no task learns of it: a task that waits for the effect of the callback would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    """Call it at once in a step of one of the loop's tasks, else in a later step of the loop. From anywhere.

    A signal handler may call this too. Between two steps the loop may be about to wait, and has to be woken.
    Raises `RuntimeError` when the loop has closed.
    """
    if in_step_of(loop):
        callback(*arguments)
    else:
        loop.call_soon_threadsafe(callback, *arguments)


def call_soon_anywhere(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    """`call_soon_threadsafe`, without waking the loop where it is awake: in a step of one of its own tasks.

    A signal handler may call this too, as with `call_in_loop`. Raises `RuntimeError` when the loop has closed.
    """
    call = loop.call_soon if in_step_of(loop) else loop.call_soon_threadsafe
    call(callback, *arguments)


def in_step_of(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is in a step of one of the loop's tasks, so that the loop is awake."""
    try:
        return asyncio.get_running_loop() is loop and asyncio.current_task(loop) is not None
    except RuntimeError:  # no loop runs in this thread
        return False


def made_again(callback: Callable[..., None]) -> Callable[..., None]:
    """Wrap a callback that may be called twice: after a Ctrl-C in it, it is called again; then the Ctrl-C is raised."""

    def call(*arguments: Any) -> None:
        try:
            callback(*arguments)
        except KeyboardInterrupt:
            callback(*arguments)
            raise

    return call


def stopping(callback: Callable[[], None], stop: Callable[[BaseException], None]) -> Callable[[], None]:
    """Wrap a callback that may not be called twice: after a Ctrl-C in it, `stop` is called; the Ctrl-C is raised."""

    def call() -> None:
        try:
            callback()
        except (KeyboardInterrupt, SystemExit) as error:
            stop(error)
            raise

    return call
