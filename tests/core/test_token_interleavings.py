"""Every interleaving of the token's operations, at the grain of its lines and of its bytecode."""

import pytest

from quiesce import CancellationToken, Mode
from tests.core.interleaving import explore, replay

pytestmark = pytest.mark.promise("P7", "P8")
FILES = ("cancellation/token.py",)


class Tree:
    """A token with a child and a grandchild, and somebody who listens at each."""

    def __init__(self) -> None:
        self.top = CancellationToken()
        self.child = self.top.child()
        self.grandchild = self.child.child()
        self.tokens = (self.top, self.child, self.grandchild)
        self.heard: list[list] = [[], [], []]
        self.watched: list[list[Mode]] = [[], [], []]
        self.changed: list[bool] = []
        for token, heard, watched in zip(self.tokens, self.heard, self.watched, strict=True):
            token.on_cancel(heard.append)
            token.watch(watched.append)

    def cancel(self, reason: str, mode: str = "now"):
        return lambda: self.changed.append(self.top.cancel(reason, mode=mode))

    def check(self, mode: Mode) -> None:
        for token, heard, watched in zip(self.tokens, self.heard, self.watched, strict=True):
            assert token.mode is mode
            assert token.stop_now is (mode >= Mode.NOW)
            assert heard == [token.cause], "each callback once, with the first cause"
            assert max(watched) is mode, "the strongest request is never lost"
        assert [token.cause.origin for token in self.tokens] == [None, self.top.cause, self.top.cause], "one cause"
        assert any(self.changed)


def cancel_cancel():
    tree = Tree()

    def check() -> None:
        tree.check(Mode.NOW)
        assert sorted(tree.changed) == [False, True]

    return tree.cancel("a"), tree.cancel("b"), check


def cancel_escalate():
    tree = Tree()
    return tree.cancel("a", "after_turn"), tree.cancel("b", "kill"), lambda: tree.check(Mode.KILL)


def escalate_escalate():
    tree = Tree()
    tree.top.cancel("first", mode="after_turn")
    for heard in tree.heard:
        assert heard[0].reason == "first"
    return tree.cancel("a", "after_tools"), tree.cancel("b", "now"), lambda: tree.check(Mode.NOW)


def child_cancel_and_parent_cancel():
    tree = Tree()

    def check() -> None:
        for token, heard in zip(tree.tokens, tree.heard, strict=True):
            assert heard == [token.cause]
            assert token.mode is Mode.NOW
        assert tree.top.cause.reason == "top"

    return tree.cancel("top"), lambda: tree.child.cancel("child"), check


def register_cancel():
    token, heard = CancellationToken(), []

    def check() -> None:
        assert heard == [token.cause]
        assert token._once == {}

    return lambda: token.on_cancel(heard.append), lambda: token.cancel("x"), check


def register_on_a_child_cancel():
    token, heard = CancellationToken(), []
    child = token.child()

    def check() -> None:
        assert heard == [child.cause]
        assert (token._once, child._once) == ({}, {})

    return lambda: child.on_cancel(heard.append), lambda: token.cancel("x"), check


def unregister_cancel():
    token, heard, others = CancellationToken(), [], []
    unregister = token.on_cancel(heard.append)
    token.on_cancel(others.append)

    def check() -> None:
        assert len(heard) <= 1
        assert others == [token.cause]

    return unregister, lambda: token.cancel("x"), check


def watch_cancel():
    token, seen = CancellationToken(), []

    def check() -> None:
        assert set(seen) == {Mode.NOW}

    return lambda: token.watch(seen.append), lambda: token.cancel("x"), check


def watch_escalate():
    token, seen = CancellationToken(), []
    token.cancel("x", mode="after_turn")

    def check() -> None:
        assert max(seen) is Mode.KILL

    return lambda: token.watch(seen.append), lambda: token.cancel("y", mode="kill"), check


def child_cancel():
    token, made = CancellationToken(), []

    def check() -> None:
        assert (made[0].mode, made[0].stop_now) == (Mode.NOW, True)
        assert made[0].cause.origin is token.cause

    return lambda: made.append(token.child()), lambda: token.cancel("x"), check


def child_escalate():
    token, made = CancellationToken(), []
    token.cancel("x", mode="after_turn")

    def check() -> None:
        assert (made[0].mode, made[0].cause.origin) == (Mode.KILL, token.cause)

    return lambda: made.append(token.child()), lambda: token.cancel("y", mode="kill"), check


def any_cancel():
    a, b, made = CancellationToken(), CancellationToken(), []

    def check() -> None:
        assert made[0].cause.origin is b.cause
        assert not a.cancelled

    return lambda: made.append(CancellationToken.any(a, b)), lambda: b.cancel("x"), check


def both_sides_of_any():
    a, b, heard = CancellationToken(), CancellationToken(), []
    either = CancellationToken.any(a, b)
    either.on_cancel(heard.append)

    def check() -> None:
        assert heard == [either.cause]
        assert either.cause.origin in (a.cause, b.cause)

    return lambda: a.cancel("a"), lambda: b.cancel("b", mode="kill"), check


def cancel_and_look():
    token, seen = CancellationToken(), []

    def look() -> None:
        for _ in range(3):
            cancelled, mode, cause = token.cancelled, token.mode, token.cause
            seen.append(cancelled)
            assert (mode is not None) >= cancelled, "a token that is cancelled has a mode"
            assert (cause is not None) >= (mode is not None), "a token that has a mode has a cause"

    def check() -> None:
        assert seen == sorted(seen), "a one-way latch"

    return look, lambda: token.cancel("x"), check


SCENARIOS = [
    cancel_cancel,
    cancel_escalate,
    escalate_escalate,
    child_cancel_and_parent_cancel,
    register_cancel,
    register_on_a_child_cancel,
    unregister_cancel,
    watch_cancel,
    watch_escalate,
    child_cancel,
    child_escalate,
    any_cancel,
    both_sides_of_any,
    cancel_and_look,
]


SMALL = [register_cancel, unregister_cancel, watch_cancel, watch_escalate, cancel_and_look]
LARGE = [each for each in SCENARIOS if each not in SMALL]  # whole trees: two pre-emptions of them are many schedules


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_every_line_with_one_preemption(scenario):
    assert explore(scenario, files=FILES, preemptions=1) > 20


@pytest.mark.parametrize("scenario", SMALL, ids=lambda each: each.__name__)
def test_every_instruction_with_one_preemption(scenario):
    assert explore(scenario, files=FILES, preemptions=1, opcodes=True) > 50


@pytest.mark.proof
@pytest.mark.parametrize("scenario", LARGE, ids=lambda each: each.__name__)
def test_every_instruction_of_a_tree_with_one_preemption(scenario):
    assert explore(scenario, files=FILES, preemptions=1, opcodes=True) > 50


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SMALL[:-1], ids=lambda each: each.__name__)
def test_every_line_of_more_with_two_preemptions(scenario):
    assert explore(scenario, files=FILES, preemptions=2) > 200


@pytest.mark.parametrize("scenario", SMALL[-1:], ids=lambda each: each.__name__)
def test_every_line_with_two_preemptions(scenario):
    assert explore(scenario, files=FILES, preemptions=2) > 200


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SMALL, ids=lambda each: each.__name__)
def test_every_line_with_three_preemptions(scenario):
    assert explore(scenario, files=FILES, preemptions=3) > 1000


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", LARGE, ids=lambda each: each.__name__)
def test_every_line_of_a_tree_with_two_preemptions(scenario):
    assert explore(scenario, files=FILES, preemptions=2) > 1000


def test_the_explorer_finds_a_race():
    """A check-then-act that loses an update is found, with the schedule that shows it."""
    from tests.core import racy

    def scenario():
        counter = racy.Counter()

        def check() -> None:
            assert counter.value == 2

        return counter.add, counter.add, check

    with pytest.raises(AssertionError) as found:
        explore(scenario, files=("core/racy.py",), preemptions=1)
    assert "schedule: replay(scenario" in found.value.__notes__[0]
    assert explore(scenario, files=("core/racy.py",), preemptions=0) == 2
    assert replay(scenario, (), swapped=False, files=("core/racy.py",)) > 2
