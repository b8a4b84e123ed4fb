"""The token: those who wait for it, its deadlines, and those who cancel it from a signal handler or many threads."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

from quiesce import CancellationToken, Mode
from quiesce.errors import ConfigurationError
from tests.core.kit import passes, until

pytestmark = pytest.mark.promise("P1", "P5")


# --- Deadlines -------------------------------------------------------------------------------------------------------


async def test_a_deadline_in_a_loop():
    token = CancellationToken()
    child = token.after(0.001)
    assert (await child.wait()).source == "deadline"
    assert child.cause.reason == "0.001 s have passed"
    assert not token.cancelled


def test_a_deadline_in_a_thread():
    token = CancellationToken()
    child = token.after(0.001, "time is up")
    assert child.wait_sync(20)
    assert str(child.cause) == "deadline: time is up"
    assert not token.cancelled


def test_a_deadline_ends_with_its_token():
    token = CancellationToken()
    child = token.after(1000)
    child.cancel("early")
    assert child.cause.source == "user"  # and the leak check sees that the timer's thread has gone


async def test_a_deadline_dies_with_its_loop_in_peace():
    token = CancellationToken()
    child = token.after(1000)
    token.cancel()
    assert child.cause.source == "parent"


@pytest.mark.parametrize("dropped", [True, False])
def test_a_deadline_that_is_not_needed_any_more_is_taken_out_of_the_loop(dropped):
    timers = []

    class Loop(asyncio.SelectorEventLoop):
        def call_later(self, delay, callback, *args, context=None):
            timer = super().call_later(delay, callback, *args, context=context)
            timers.append(timer)
            return timer

    async def main() -> None:
        token = CancellationToken().after(1000)
        if dropped:
            del token
            gc.collect()
        else:
            token.cancel("early")
        await passes()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    assert [timer.cancelled() for timer in timers] == [True]


@pytest.mark.parametrize("dropped", [True, False])
def test_a_deadline_whose_loop_has_closed(dropped):
    token, kept = CancellationToken(), []

    async def main() -> None:
        kept.append(token.after(1000))

    asyncio.run(main())
    if dropped:
        kept.clear()
        gc.collect()
    assert token.cancel("late") is True
    assert token.cause.reason == "late"
    assert [child.cause.source for child in kept] == ([] if dropped else ["parent"])


# --- Waiting ---------------------------------------------------------------------------------------------------------


async def test_any_number_of_tasks_wait():
    token = CancellationToken()
    waiters = [asyncio.create_task(token.wait()) for _ in range(10)]
    await until(lambda: len(token._once) == 10)
    threading.Thread(target=token.cancel, args=("go",)).start()
    assert {cause.reason for cause in await asyncio.gather(*waiters)} == {"go"}
    assert (await token.wait()).reason == "go"


def test_wait_sync():
    token = CancellationToken()
    assert token.wait_sync(0) is False
    assert token.wait_sync(0.001) is False
    thread = threading.Thread(target=token.cancel)
    thread.start()
    assert token.wait_sync(20) is True
    assert token.wait_sync() is True
    thread.join()


def test_the_longest_times():
    token = CancellationToken()
    thread = threading.Thread(target=token.cancel)
    thread.start()
    assert token.wait_sync(float("inf")) is True
    thread.join()
    for wrong in (1e10, 10**400, float("nan")):
        with pytest.raises(ConfigurationError, match="is no time"):
            token.after(wrong)


def test_one_who_waited_in_a_loop_that_is_gone_harms_nobody(caplog):
    token = CancellationToken()
    loop = asyncio.new_event_loop()
    task = loop.create_task(token.wait())
    loop.run_until_complete(asyncio.sleep(0))
    keep = dict(token._once)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    token._once.update(keep)  # as if the cancel had come just before the loop's end
    token.cancel()
    assert not caplog.records


# --- Signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_signal_handler_may_cancel_just_before_the_thread_does():
    before = signal.getsignal(signal.SIGUSR1)
    tokens = [CancellationToken() for _ in range(200)]
    current = iter(tokens)
    signal.signal(signal.SIGUSR1, lambda *_: next(current).cancel("signal", source="signal"))
    try:
        for token in tokens:
            heard = []
            token.on_cancel(heard.append)
            os.kill(os.getpid(), signal.SIGUSR1)
            token.cancel("line")
            assert len(heard) == 1
            assert (token.cause.source, token.cause.reason) == ("signal", "signal"), "the first cause wins"
    finally:
        signal.signal(signal.SIGUSR1, before)


# --- Many threads ----------------------------------------------------------------------------------------------------


def test_fifty_threads_cancel_one_token_at_once():
    """The thousand rounds on a run are in test_sync.py; this one is on the bare token, with a child."""
    for _ in range(50):
        token, heard = CancellationToken(), []
        child = token.child()
        token.on_cancel(heard.append)
        child.on_cancel(heard.append)
        barrier, changed = threading.Barrier(50), []

        def cancel(number: int, token=token, barrier=barrier, changed=changed) -> None:
            barrier.wait()
            if token.cancel(str(number), mode=list(Mode)[number % 4]):
                changed.append(number)

        threads = [threading.Thread(target=cancel, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(heard) == 2
        assert (token.mode, child.mode) == (Mode.KILL, Mode.KILL)
        assert 1 <= len(changed) <= 4
        assert token.stop_now
        assert child.stop_now


SIGNAL_ANYWHERE = """
import signal, sys
from quiesce import CancellationToken

def wait(step):
    # Wait, and be cancelled by a signal handler before the n-th step of the interpreter. Whether there was one.
    token, steps = CancellationToken(), 0
    signal.signal(signal.SIGUSR1, lambda *_: token.cancel("signal"))

    def trace(frame, event, argument):
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += 1
        if steps == step:
            signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)
    try:
        asked = token.wait_sync(0.2)
    finally:
        sys.settrace(None)
    assert token.cancelled or not asked
    return token.cancelled

steps = 1
while wait(steps):
    steps += 1
print(steps)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="There is no SIGUSR1.")
def test_a_signal_handler_may_cancel_what_its_thread_is_about_to_wait_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNAL_ANYWHERE], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_a_deadline_without_a_loop_does_not_keep_the_program_alive() -> None:
    program = "from quiesce import CancellationToken; token = CancellationToken().after(3600); print('end')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "end\n"
