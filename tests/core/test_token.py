"""The token: every line of what it promises. A latch, its callbacks, its tree, and a view of it."""

import gc
import logging
import time
import weakref

import pytest

from quiesce import CancellationToken, Cancelled, Mode
from quiesce.cancellation import Cause, TokenView
from quiesce.cancellation.cause import parse_mode
from quiesce.errors import ConfigurationError, UnknownMode
from tests.core.interrupted import interrupted_at_each_line

pytestmark = pytest.mark.promise("P1", "P8")


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


# --- Views -----------------------------------------------------------------------------------------------------------


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


def test_causes_carry_wall_time_and_a_monotonic_reading():
    before = time.perf_counter()
    token = CancellationToken()
    token.cancel()
    assert before <= token.cause.clock <= time.perf_counter()
    assert abs(token.cause.at - time.time()) < 60


@pytest.mark.parametrize("register", ["on_cancel", "watch"])
def test_what_cannot_be_called_is_refused_when_it_is_registered(register: str) -> None:
    token = CancellationToken()
    with pytest.raises(ConfigurationError, match="cannot be called when a stop comes"):
        getattr(token, register)("nothing")
    assert token.cancel()


@pytest.mark.promise("P7")
@pytest.mark.parametrize("register", ["on_cancel", "watch"])
def test_a_callback_that_is_interrupted_by_ctrl_c_at_its_registration_passes_it_on(register: str) -> None:
    token = CancellationToken()
    token.cancel("first")

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        getattr(token, register)(interrupted)


@pytest.mark.promise("P1")
def test_a_stop_that_ctrl_c_cuts_reaches_everybody() -> None:
    """Found by the injector: the token was cancelled, its children were not, and a second stop changed nothing."""

    def play(press) -> None:
        token, told = CancellationToken(), []
        child = token.child()
        grandchild = child.child()
        for number, each in enumerate((token, child, grandchild)):
            each.watch(lambda mode, number=number: told.append((number, mode)))
            each.on_cancel(lambda cause, number=number: told.append((number, cause.reason)))
        press(lambda: token.cancel("why"))
        assert [(each.mode, each.stop_now, each.stop_asked) for each in (token, child, grandchild)] == [
            (Mode.NOW, True, True)
        ] * 3
        assert set(told) == {(number, what) for number in range(3) for what in (Mode.NOW, "why")}
        assert grandchild.cause.origin.reason == "why"
        assert token.cancel("again") is False

    assert interrupted_at_each_line(("cancellation/token.py",), play) > 80


@pytest.mark.promise("P8", "P1")
def test_a_second_request_reaches_a_grandchild_in_its_mode() -> None:
    token = CancellationToken()
    grandchild = token.child().child()
    told: list[Mode] = []
    grandchild.watch(told.append)
    token.cancel("first")
    token.cancel("second", mode="kill")
    assert told == [Mode.NOW, Mode.KILL]
    assert grandchild.mode is Mode.KILL
    assert grandchild.cause.reason == "first"
