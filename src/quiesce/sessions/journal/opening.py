"""The task that acquires a session for a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ..._threads.tasks import start_task


class SessionOpening:
    """Runs `open_session`, which stops waiting when the future that it gets is done. Only for the run's own loop."""

    def __init__(self, open_session: Callable[[asyncio.Future[None]], Coroutine[Any, Any, None]], name: str) -> None:
        loop = asyncio.get_running_loop()
        self._give_up: Final[asyncio.Future[None]] = loop.create_future()
        self.task: Final = start_task(open_session(self._give_up), name=f"quiesce session {name}", loop=loop)

    def stop_waiting(self) -> None:
        """Stop waiting for a session that another process holds."""
        if not self._give_up.done():
            self._give_up.set_result(None)
