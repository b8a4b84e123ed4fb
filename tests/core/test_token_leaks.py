"""The token: what it keeps alive, and what it does not."""

import asyncio
import gc
import weakref

import pytest

from quiesce import CancellationToken

pytestmark = pytest.mark.promise("P5")


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
