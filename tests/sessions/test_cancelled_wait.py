"""A wait for a session that is cancelled leaves nothing behind, also when the store answers later with a refusal."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from typing import Any

import pytest

from quiesce.errors import SessionBusy
from quiesce.sessions import Session
from quiesce.sessions.stores.memory import MemoryStore

pytestmark = pytest.mark.promise("P5")


class SlowStore(MemoryStore):
    """Answers a request for a session when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Future[Any] = Future()

    def acquire(self, *args: Any, **options: Any) -> Future[Any]:
        return self.asked


def test_a_late_refusal_is_not_reported_as_forgotten() -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        store = SlowStore()
        opening = asyncio.create_task(Session("s", store).open(loop.create_future()))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait((opening,))
        store.asked.set_exception(SessionBusy("s", "process 1", 1.0))
        store.asked = Future()
        await asyncio.sleep(0)
        del opening
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert complaints == []
