"""A callback for a loop, from wherever a stop may come: a task of it, a callback, another thread, a signal handler."""

import asyncio
import os
import signal
import threading

import pytest

from quiesce._threads.latch import Latch
from quiesce._threads.loop_callback import call_in_loop, call_soon_anywhere

pytestmark = pytest.mark.promise("P1")

# Without the wake-up, the loop would wait this long, and the test fail.
_LONG = 5


async def _called(soon) -> str:
    """Whether a callback was called, although nothing else wakes the loop."""
    called = asyncio.get_running_loop().create_future()
    soon(lambda: called.set_result("called"))
    return await asyncio.wait_for(called, _LONG)


def test_from_a_task_the_loop_is_not_woken(monkeypatch):
    async def in_task() -> list[str]:
        loop, woken = asyncio.get_running_loop(), []
        monkeypatch.setattr(loop, "call_soon_threadsafe", woken.append)
        assert await _called(lambda callback: call_soon_anywhere(loop, callback)) == "called"
        return woken

    assert asyncio.run(in_task()) == []


async def test_from_a_plain_callback():
    loop = asyncio.get_running_loop()
    assert await _called(lambda callback: loop.call_later(0, call_soon_anywhere, loop, callback)) == "called"


async def test_from_another_thread():
    loop = asyncio.get_running_loop()
    threads = []

    def soon(callback) -> None:
        threads.append(threading.Thread(target=call_soon_anywhere, args=(loop, callback)))
        threads[0].start()

    assert await _called(soon) == "called"
    threads[0].join()


async def test_from_the_loop_of_another_thread():
    loop = asyncio.get_running_loop()
    threads = []

    async def elsewhere(callback) -> None:
        call_soon_anywhere(loop, callback)

    def soon(callback) -> None:
        threads.append(threading.Thread(target=lambda: asyncio.run(elsewhere(callback))))
        threads[0].start()

    assert await _called(soon) == "called"
    threads[0].join()


def test_from_a_signal_handler_while_the_loop_waits():
    """The handler runs in the loop's own thread, inside `select`, which goes on waiting after it."""
    reached, in_time = threading.Event(), []

    def signal_and_wait(number: int) -> None:
        os.kill(os.getpid(), number)
        in_time.append(reached.wait(_LONG))

    async def wait_for_signal() -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()

        def note() -> None:
            reached.set()
            called.set_result(None)

        before = signal.signal(signal.SIGUSR1, lambda *_: call_soon_anywhere(loop, note))
        thread = threading.Timer(0.2, signal_and_wait, (signal.SIGUSR1,))
        thread.start()
        try:
            await asyncio.wait_for(called, _LONG + 5)
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)

    asyncio.run(wait_for_signal())
    assert in_time == [True]


def test_a_loop_that_has_closed():
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError):
        call_soon_anywhere(loop, lambda: None)


async def test_in_a_step_of_a_task_it_is_called_at_once_and_in_a_callback_later():
    loop, called = asyncio.get_running_loop(), []
    call_in_loop(loop, called.append, "in a step")
    assert called == ["in a step"]
    seen_in_callback: list[list[str]] = []

    def in_callback() -> None:
        call_in_loop(loop, called.append, "after a callback")
        seen_in_callback.append(list(called))

    loop.call_soon(in_callback)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen_in_callback == [["in a step"]]
    assert called == ["in a step", "after a callback"]


async def test_a_latch_forgets_the_waits_that_were_cancelled():
    latch = Latch[int]()
    for _ in range(3):
        latch.future().cancel()
    waiting = latch.future()
    assert list(latch._waiters) == [waiting]
    latch.set_result(1)
    assert waiting.done(), "in a step of the loop that waits, without another one in between"
    assert await latch.future() == 1
    assert latch._waiters == {}
