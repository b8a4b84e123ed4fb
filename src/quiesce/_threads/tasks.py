"""Tasks that always begin in a later step of their loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def start_task(
    work: Coroutine[Any, Any, _T], *, name: str | None = None, loop: asyncio.AbstractEventLoop | None = None
) -> asyncio.Task[_T]:
    """`create_task`, past the loop's task factory: with `asyncio.eager_task_factory`, `work` would begin at once.

    The caller has to note the task before the work begins, and a stop that comes in between has to reach it.
    """
    return asyncio.Task(work, loop=loop or asyncio.get_running_loop(), name=name)
