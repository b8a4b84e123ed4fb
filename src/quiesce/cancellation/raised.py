"""Which exceptions code of other people has raised itself."""

from __future__ import annotations

import asyncio
from typing import Final

from .cause import Source

ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)


class EndedElsewhere(BaseException):
    """`error`, which ends the program, was raised in another task. It went up from there and is not raised again."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error: Final = error


def stop_cause(error: BaseException) -> tuple[str, Source]:
    """Why a run stops because of what ends the program: the reason and the source."""
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C", "signal"
    return f"{type(error).__name__} in the event loop", "shutdown"


def raised_in(error: BaseException, package: str) -> bool:
    """Whether an exception came up through code of this package: what that was doing is half done."""
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith(package):
            return True
        trace = trace.tb_next
    return False


def is_own_error(error: BaseException) -> bool:
    """Whether the code that was awaited raised this itself, so that it is a failure and no stop.

    False for a cancellation of the current task and for what ends the program. A `CancelledError` in a task that was
    not cancelled, and a `BaseException` such as the panics of Rust extensions, are errors like any other.
    """
    if isinstance(error, (*ENDS_PROGRAM, GeneratorExit, EndedElsewhere)):
        return False
    task = asyncio.current_task()
    return not isinstance(error, asyncio.CancelledError) or (task is not None and not task.cancelling())
