"""Which exceptions code of other people has raised itself."""

from __future__ import annotations

import asyncio


def is_own_error(error: BaseException) -> bool:
    """Whether the code that was awaited raised this itself, so that it is a failure and no stop.

    False for a cancellation of the current task and for what ends the program. A `CancelledError` in a task that was
    not cancelled, and a `BaseException` such as the panics of Rust extensions, are errors like any other.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return False
    task = asyncio.current_task()
    return not isinstance(error, asyncio.CancelledError) or (task is not None and not task.cancelling())
