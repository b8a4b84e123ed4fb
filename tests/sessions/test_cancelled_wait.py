"""A wait for a session that is cancelled leaves nothing behind, also when the store answers later with a refusal."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent
from quiesce.conversation.validity import user_message
from quiesce.errors import SessionBusy, StoreUnavailable
from quiesce.models.scripted import ScriptedModel
from quiesce.sessions import Session
from quiesce.sessions.queue.busy_policy import BusyPolicy
from quiesce.sessions.records import Lease
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import run_virtual

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
        store.asked.set_running_or_notify_cancel()  # the store works on it, so it can no longer be withdrawn
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


class SlowWrites(MemoryStore):
    """Answers a write, and a prompt that leaves the queue, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Future[Any] | None = None
        self.slow = False

    def _answer(self, direct: Any) -> Future[Any]:
        if not self.slow:
            return direct()
        self.asked = Future()
        self.asked.set_running_or_notify_cancel()
        return self.asked

    def write(self, *args: Any) -> Future[Any]:
        return self._answer(lambda: super(SlowWrites, self).write(*args))

    def withdraw(self, *args: Any) -> Future[Any]:
        return self._answer(lambda: super(SlowWrites, self).withdraw(*args))


def complaints_of(main: Callable[[], Coroutine[Any, Any, None]]) -> list[str]:
    """What the loop's exception handler hears while `main` runs, and at the collection after it."""
    heard: list[str] = []

    async def listen() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["message"]))
        await main()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(listen())
    return heard


async def _fail_after_the_wait(store: SlowWrites, waiting: asyncio.Task[Any]) -> None:
    while store.asked is None:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    store.asked.set_exception(StoreUnavailable("The store is away."))
    store.asked = None
    await asyncio.sleep(0)


def test_a_write_that_fails_after_the_wait_for_it_is_not_reported_as_forgotten() -> None:
    async def main() -> None:
        store, loop = SlowWrites(), asyncio.get_running_loop()
        session = Session("s", store)
        lease = await session.open(loop.create_future())
        assert isinstance(lease, Lease)
        store.slow = True
        await _fail_after_the_wait(store, asyncio.create_task(session.save(lease, {"note": b"1"})))

    assert complaints_of(main) == []


def test_a_prompt_that_cannot_leave_the_queue_is_not_reported_as_forgotten() -> None:
    async def main() -> None:
        store, loop = SlowWrites(), asyncio.get_running_loop()
        await Session("s", store).open(loop.create_future())
        store.slow, give_up = True, loop.create_future()
        waiting = asyncio.create_task(Session("s", store).open(give_up, BusyPolicy("queue", user_message("Hello."))))
        await asyncio.sleep(0.01)
        give_up.set_result(None)
        await _fail_after_the_wait(store, waiting)

    assert complaints_of(main) == []


@pytest.mark.promise("P1", "P5")
async def test_a_slow_store_is_not_asked_for_sessions_that_no_run_waits_for(tmp_path: Path) -> None:
    """Found by the soak: each run that was stopped meanwhile left its request in the queue, which grew and grew."""
    store, busy = SQLiteStore(tmp_path / "slow.db"), threading.Event()
    agent = Agent(ScriptedModel(then="Never asked."))
    try:
        held = store._thread.submit(busy.wait)
        runs = [agent.start("Go", session=Session(f"s{number}", store)) for number in range(5)]
        for run in runs:
            run.cancel("The store takes too long")
            assert (await run.stopped()).stop_reason == "cancelled"
    finally:
        busy.set()
    held.result()
    assert store.sessions().result() == []
    store.close().result()


async def test_a_deletion_that_is_cancelled_leaves_no_lease() -> None:
    """Other processes had to wait until it was over, and no run was there."""
    store = MemoryStore()
    await Agent(ScriptedModel("Hello."), session=Session("s", store)).invoke_async("Hi")
    for steps in range(4):
        deleting = asyncio.create_task(Session("s", store).delete())
        for _ in range(steps):
            await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait((deleting,))
        assert [each.holder for each in store.sessions().result()] in ([None], [])


class Hanging(MemoryStore):
    """Does not answer when a prompt is to be queued, or is to leave the queue."""

    def enqueue(self, *args: Any, **options: Any) -> Future[int]:
        return Future() if self.hangs_at == "enqueue" else super().enqueue(*args, **options)

    def withdraw(self, *args: Any, **options: Any) -> Future[Any]:
        return Future() if self.hangs_at == "withdraw" else super().withdraw(*args, **options)

    hangs_at = ""


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("call", ["enqueue", "withdraw"])
def test_a_store_that_does_not_answer_in_the_queue_is_waited_for_no_longer_than_elsewhere(call: str) -> None:
    async def main() -> None:
        store, loop = Hanging(), asyncio.get_running_loop()
        await Session("s", store).open(loop.create_future())
        store.hangs_at, give_up = call, loop.create_future()
        loop.call_later(5, give_up.set_result, None)
        with pytest.raises((StoreUnavailable, SessionBusy)):
            async with asyncio.timeout(60):
                await Session("s", store).open(give_up, BusyPolicy("queue", user_message("Hello.")))

    run_virtual(main())
