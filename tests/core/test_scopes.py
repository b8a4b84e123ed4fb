"""Scopes that a token closes, and shields that are bounded."""

import asyncio
from contextlib import suppress

import pytest

from quiesce import CancellationToken, Mode
from quiesce.cancellation import BoundedShield, StopScope
from tests.core.kit import passes

pytestmark = pytest.mark.promise("P1", "P7")


def react_at(scope: StopScope, mode: Mode) -> bool:
    scope.mode = mode
    return scope.react()


# --- Scopes ----------------------------------------------------------------------------------------------------------


async def test_a_scope_is_closed_by_its_token_from_another_thread():
    token = CancellationToken()
    reached = []
    with StopScope(token):
        asyncio.get_running_loop().run_in_executor(None, token.cancel)
        await asyncio.get_running_loop().create_future()
        reached.append("never")
    assert reached == []
    assert token._watchers == {}
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_what_a_task_has_waited_for_is_not_lost():
    """The stop comes when the result is there, and the task is about to go on: it is cut where it waits next."""
    token, taken, loop = CancellationToken(), [], asyncio.get_running_loop()
    future = loop.create_future()

    async def inside() -> None:
        with StopScope(token):
            taken.append(await future)
            await loop.create_future()
            taken.append("never")

    task = asyncio.create_task(inside())
    await asyncio.sleep(0)
    future.set_result("a result")
    token.cancel()
    await task
    assert taken == ["a result"]
    assert task.cancelling() == 0


async def test_a_scope_that_is_entered_after_the_stop():
    token = CancellationToken()
    token.cancel()
    with StopScope(token):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise AssertionError
    assert asyncio.current_task().cancelling() == 0


async def test_a_scope_reacts_to_modes():
    token = CancellationToken()
    passed = []
    with StopScope(token, Mode.KILL) as scope:
        token.cancel(mode="after_tools")
        await passes()
        passed.append("after_tools")
        react_at(scope, Mode.NOW)
        await passes()
        passed.append("now")
        react_at(scope, Mode.AFTER_TURN)
        await passes()
        passed.append("never")
    assert passed == ["after_tools", "now"]


async def test_a_scope_reacts_at_once_and_later_in_the_mode_it_was_changed_to():
    token, passed = CancellationToken(), []
    with StopScope(token, Mode.KILL) as scope:
        assert react_at(scope, Mode.AFTER_TOOLS) is False
        token.cancel(mode="after_turn")
        await passes()
        passed.append("after_turn")
        token.cancel(mode="after_tools")
        await passes()
        passed.append("never")
    assert passed == ["after_turn"]
    with StopScope(token, Mode.NOW) as scope:
        assert react_at(scope, Mode.KILL) is False
        token.cancel(mode="now")
        await passes()
        passed.append("now")
        assert react_at(scope, Mode.NOW) is True
        await passes()
        passed.append("never")
    assert passed == ["after_turn", "now"]


async def test_a_stop_after_the_scope_touches_nothing():
    token = CancellationToken()
    with StopScope(token) as scope:
        scope._on_request(Mode.NOW)  # reaches the loop when the scope has been left
    await passes()
    token.cancel()
    scope._on_request(Mode.NOW)
    await passes()
    assert not scope._scope.cancel_called
    assert asyncio.current_task().cancelling() == 0


async def test_an_outside_cancellation_passes_through_a_scope():
    async def inside(token: CancellationToken, *, also: bool) -> None:
        with StopScope(token):
            if also:
                token.cancel()
            await asyncio.get_running_loop().create_future()

    for also in (False, True):
        task = asyncio.create_task(inside(CancellationToken(), also=also))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


async def test_a_timeout_around_a_scope_and_a_scope_around_a_timeout():
    token = CancellationToken()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            with StopScope(token):
                await asyncio.get_running_loop().create_future()
    with StopScope(token):
        asyncio.get_running_loop().call_soon(token.cancel)
        async with asyncio.timeout(1000):
            await asyncio.get_running_loop().create_future()
    assert asyncio.current_task().cancelling() == 0


async def test_ctrl_c_as_a_scope_is_entered_leaves_none_open():
    class Interrupted(CancellationToken):
        def watch(self, watcher):
            watcher(Mode.KILL)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StopScope(Interrupted()).__enter__()
    await passes()
    assert asyncio.current_task().cancelling() == 0


def test_a_scope_whose_loop_has_closed(caplog: pytest.LogCaptureFixture):
    token, told = CancellationToken(), []
    loop = asyncio.new_event_loop()

    async def enter() -> StopScope:
        return StopScope(token).__enter__()

    scope = loop.run_until_complete(enter())
    token.on_cancel(lambda _: told.append("the next registration"))
    loop.close()
    assert token.cancel("late") is True
    assert told == ["the next registration"], "the closed loop keeps the stop from nothing else"
    assert not scope._scope.cancel_called
    assert caplog.messages == []


# --- Shields ---------------------------------------------------------------------------------------------------------


async def test_a_shield_waits_on_although_it_is_cancelled():
    shield, future = BoundedShield("test"), asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await shield.wait((future,), seconds=1000)

    task = asyncio.create_task(wait())
    for _ in range(3):
        await passes()
        task.cancel()
    await passes()
    assert not task.done()
    future.set_result(None)
    await task
    assert shield.interrupted


async def test_a_shield_is_bounded():
    shield, loop = BoundedShield("test"), asyncio.get_running_loop()
    future, unless = loop.create_future(), loop.create_future()
    await shield.wait((future,), seconds=0)
    await shield.wait((), seconds=1000)
    loop.call_soon(unless.set_result, None)
    await shield.wait((future,), seconds=1000, unless=unless)
    await shield.wait((future,), seconds=1000, unless=unless)
    assert not future._callbacks, "a wait that is over leaves nothing at the future"
    assert not shield.interrupted
    both = [loop.create_future(), loop.create_future()]
    loop.call_soon(both[0].set_result, None)
    loop.call_later(0.001, both[1].set_result, None)
    await shield.wait(both, seconds=1000)
    assert all(each.done() for each in both)
    future.cancel()


@pytest.mark.promise("P7")
async def test_a_ctrl_c_while_a_scope_is_left_does_not_leave_it_open() -> None:
    scope = StopScope(CancellationToken())
    with suppress(KeyboardInterrupt), scope:
        scope._forget = _press
    scope._scope.cancel()  # as a stop that comes now would
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _press() -> bool:
    raise KeyboardInterrupt
