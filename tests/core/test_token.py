"""The token: every line of what it promises."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from quiesce import CancellationToken, Cancelled, Mode
from quiesce.cancellation import Cause, TokenView
from quiesce.cancellation.cause import parse_mode
from quiesce.errors import UnknownMode
from tests.core.kit import until

pytestmark = pytest.mark.promise("P1", "P5", "P8")


def test_a_new_token_is_quiet():
    token = CancellationToken()
    assert (token.cancelled, token.cause, token.mode, token.stop_now) == (False, None, None, False)
    token.raise_if_cancelled()
    assert repr(token) == "<CancellationToken>"
    assert not token.wants(Mode.AFTER_TURN)


def test_cancel_is_idempotent_and_the_first_cause_wins():
    token = CancellationToken()
    assert token.cancel("first", source="user") is True
    assert token.cancel("second", source="deadline") is False
    assert (token.cause.reason, token.cause.source, token.mode) == ("first", "user", Mode.NOW)
    with pytest.raises(Cancelled, match="first") as caught:
        token.raise_if_cancelled()
    assert caught.value.cause is token.cause
    assert "user: first" in repr(token)


@pytest.mark.parametrize("first", list(Mode))
@pytest.mark.parametrize("second", list(Mode))
def test_a_later_request_can_only_escalate(first, second):
    token = CancellationToken()
    token.cancel("a", mode=first)
    assert token.cancel("b", mode=second) is (second > first)
    assert token.mode is max(first, second)
    assert (token.cause.reason, token.cause.mode) == ("a", first)
    assert token.stop_now is (max(first, second) >= Mode.NOW)


def test_modes_compare_by_urgency_and_with_plain_strings():
    assert [mode.value for mode in sorted(Mode)] == ["after_turn", "after_tools", "now", "kill"]
    assert Mode.NOW > "after_tools"
    assert Mode.NOW >= "now"
    assert Mode.NOW <= "kill"
    assert Mode.AFTER_TURN < "now"
    assert Mode.KILL.urgency == 3
    assert parse_mode("kill") is Mode.KILL


def test_an_unknown_mode_is_an_error_and_still_a_stop():
    token = CancellationToken()
    with pytest.raises(UnknownMode, match="after_turn, after_tools, now, kill"):
        token.cancel("x", mode="gently")
    assert token.mode is Mode.NOW


def test_callbacks_fire_once_and_late_ones_at_once():
    token, heard = CancellationToken(), []
    token.on_cancel(lambda cause: heard.append(("early", cause.reason)))
    token.cancel("why", mode="after_turn")
    token.cancel("more", mode="kill")
    token.on_cancel(lambda cause: heard.append(("late", cause.reason)))
    assert heard == [("early", "why"), ("late", "why")]


def test_a_callback_can_be_taken_off_twice():
    token, heard = CancellationToken(), []
    unregister = token.on_cancel(heard.append)
    unregister()
    unregister()
    token.cancel()
    assert heard == []
    unregister()


def test_a_callback_that_raises_harms_nobody(caplog):
    token, heard = CancellationToken(), []

    def broken(cause: Cause) -> None:
        raise SystemExit

    token.on_cancel(broken)
    token.on_cancel(heard.append)
    token.watch(broken)
    token.watch(heard.append)
    with caplog.at_level(logging.ERROR, "quiesce"):
        token.cancel()
        token.on_cancel(broken)
    assert len(heard) == 2
    assert len(caplog.records) == 3


@pytest.mark.case("autogen#7956")
def test_a_callback_may_use_the_token_freely():
    token, heard = CancellationToken(), []

    def nosy(cause: Cause) -> None:
        heard.append((token.cancelled, token.cause is cause, token.wait_sync(0)))
        token.cancel("again", mode="kill")
        token.on_cancel(lambda cause: heard.append("nested"))
        token.child().on_cancel(lambda cause: heard.append("child"))
        unregister()

    unregister = token.on_cancel(nosy)
    token.cancel()
    assert heard == [(True, True, True), "nested", "child"]


def test_watchers_see_every_escalation_and_can_leave():
    token, seen = CancellationToken(), []
    leave = token.watch(seen.append)
    token.cancel(mode="after_turn")
    token.cancel(mode="now")
    token.cancel(mode="after_tools")
    leave()
    leave()
    token.cancel(mode="kill")
    assert seen == [Mode.AFTER_TURN, Mode.NOW]
    token.watch(seen.append)
    assert seen[-1] is Mode.KILL


def test_a_child_is_cancelled_with_its_parent_and_alone():
    parent = CancellationToken()
    child, other = parent.child(), parent.child()
    child.cancel("just me")
    assert (parent.cancelled, other.cancelled) == (False, False)
    parent.cancel("all", source="deadline")
    assert child.cause.reason == "just me"
    assert (other.cause.source, other.cause.reason, other.cause.origin) == ("parent", "all", parent.cause)
    assert str(other.cause) == "parent (deadline): all"
    assert str(Cause("user")) == "user"


def test_escalation_reaches_children_and_late_children_see_the_strongest_mode():
    parent = CancellationToken()
    child = parent.child()
    parent.cancel("a", mode="after_turn")
    parent.cancel("b", mode="kill")
    late = parent.child()
    for token in (child, late):
        assert (token.mode, token.cause.mode, token.cause.reason) == (Mode.KILL, Mode.AFTER_TURN, "a")
        assert token.stop_now


def test_any_of_several():
    a, b = CancellationToken(), CancellationToken()
    either = CancellationToken.any(a, b)
    assert not either.cancelled
    b.cancel("b")
    assert either.cause.origin is b.cause
    assert not a.cancelled
    assert CancellationToken.any(a, b).cancelled
    assert not CancellationToken.any().cancelled


def test_a_diamond_hears_once():
    top = CancellationToken()
    left, right = top.child(), top.child()
    bottom, heard = CancellationToken.any(left, right), []
    bottom.on_cancel(heard.append)
    top.cancel("x")
    assert len(heard) == 1
    assert heard[0].origin is top.cause


def test_a_deep_tree_of_ten_thousand():
    top = CancellationToken()
    chain = [top]
    for _ in range(10_000):
        chain.append(chain[-1].child())
    heard = []
    chain[-1].on_cancel(heard.append)
    top.cancel("deep")
    assert all(token.cancelled for token in chain)
    assert heard[0].origin is top.cause
    assert heard[0].origin.origin is None
    refs = [weakref.ref(token) for token in chain[1:]]
    del chain
    heard.clear()
    top._once.clear()
    gc.collect()
    assert not any(ref() for ref in refs)


def test_a_wide_tree_of_ten_thousand():
    top = CancellationToken()
    children = [top.child() for _ in range(10_000)]
    top.cancel()
    assert all(child.cancelled for child in children)


# --- Leaks ----------------------------------------------------------------------------------------------------------


def test_a_long_lived_parent_does_not_keep_its_children():
    parent = CancellationToken()
    refs = [weakref.ref(parent.child()) for _ in range(100)]
    gc.collect()
    assert not any(ref() for ref in refs)
    assert parent._children == {}


def test_a_child_keeps_its_parents_but_not_its_siblings():
    parent = CancellationToken()
    a, b = parent.child(), parent.child()
    ref, sibling = weakref.ref(parent), weakref.ref(b)
    del parent, b
    gc.collect()
    assert ref() is not None
    assert sibling() is None
    a.cancel()


def test_a_child_that_only_its_callback_holds_lives_until_that_is_taken_off():
    parent, heard = CancellationToken(), []
    unregister = CancellationToken.any(parent).on_cancel(heard.append)
    gc.collect()
    unregister()
    gc.collect()
    assert parent._children == {}
    assert parent._once == {}
    parent.child().child().on_cancel(heard.append)
    gc.collect()
    parent.cancel()
    assert len(heard) == 1


def test_a_linked_token_does_not_leak_through_the_side_that_lives_long():
    long, short = CancellationToken(), CancellationToken()
    for _ in range(100):
        CancellationToken.any(long, short).on_cancel(print)()
    gc.collect()
    assert (long._children, long._once, long._watchers) == ({}, {}, {})


async def test_waiting_leaves_nothing_behind():
    token = CancellationToken()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await token.wait()
    token.wait_sync(0)
    assert token._once == {}


@pytest.mark.parametrize("inside", [True, False])
def test_deadlines_of_a_long_lived_parent_do_not_leak(inside):
    parent = CancellationToken()

    def make() -> list[weakref.ref]:
        return [weakref.ref(parent.after(1000)) for _ in range(20)]

    async def main() -> list[weakref.ref]:
        return make()

    refs = asyncio.run(main()) if inside else make()
    gc.collect()
    assert not any(ref() for ref in refs)
    assert (parent._children, parent._once) == ({}, {})


def test_a_registration_that_has_fired_is_forgotten():
    parent = CancellationToken()
    for _ in range(20):
        child = parent.child()
        child.on_cancel(lambda cause: None)
        child.cancel()
        child.on_cancel(lambda cause: None)
    del child
    gc.collect()
    assert (parent._children, parent._once) == ({}, {})


# --- Deadlines ------------------------------------------------------------------------------------------------------


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
def test_a_deadline_whose_loop_has_closed(dropped):
    token, kept = CancellationToken(), []

    async def main() -> None:
        kept.append(token.after(1000))

    asyncio.run(main())
    if dropped:
        kept.clear()
        gc.collect()
    token.cancel()


# --- Waiting --------------------------------------------------------------------------------------------------------


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


# --- Signals --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_signal_handler_may_cancel_between_any_two_lines():
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
            token.wait_sync(20)
            assert len(heard) == 1
            assert token.cause.reason in ("signal", "line")
    finally:
        signal.signal(signal.SIGUSR1, before)


# --- Views ----------------------------------------------------------------------------------------------------------


async def test_a_view_looks_and_waits_but_cannot_cancel():
    token, heard = CancellationToken(), []
    view = TokenView(token)
    assert not hasattr(view, "cancel")
    assert (view.cancelled, view.cause, view.mode) == (False, None, None)
    view.raise_if_cancelled()
    view.on_cancel(heard.append)
    child = view.child()
    child.cancel()
    assert not token.cancelled
    token.cancel("x")
    assert (view.cancelled, view.cause, view.mode) == (True, token.cause, Mode.NOW)
    assert (await view.wait()) is token.cause
    assert view.wait_sync(0)
    with pytest.raises(Cancelled):
        view.raise_if_cancelled()
    assert heard == [token.cause]
    assert "view of" in repr(view)


# --- Many threads ---------------------------------------------------------------------------------------------------


def test_fifty_threads_cancel_one_token_at_once():
    """The thousand rounds on a run are in test_threads.py; this one is on the bare token, with a child."""
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


def test_causes_carry_wall_time_and_a_monotonic_reading():
    before = time.perf_counter()
    token = CancellationToken()
    token.cancel()
    assert before <= token.cause.clock <= time.perf_counter()
    assert abs(token.cause.at - time.time()) < 60


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
