"""The end of tool calls whose event loop was closed: what can be proved to have ended, and what cannot."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .policy import EXIT_GRACE

if TYPE_CHECKING:
    from ..processes.supervised import SupervisedProcess


def close_coroutine(task: asyncio.Task[Any]) -> bool:
    """End the coroutine of a task whose loop is closed. Whether its clean-up came to its end: it may await there."""
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine):
        return False
    try:
        coroutine.close()
    except BaseException:  # it has no reader any more
        return False
    return True


def end_process(process: SupervisedProcess) -> bool:
    """End a process whose loop is closed, with all that it started, and wait for that. Whether it is gone."""
    with suppress(RuntimeError):  # what waits for it was in the loop
        process.stop(0.0)
        process.wait_gone_blocking(EXIT_GRACE)
    return process.gone
