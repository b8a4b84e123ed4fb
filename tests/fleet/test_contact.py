"""A worker's contact with the store: it counts as lost before the lease ends, and only when renewals have failed."""

from __future__ import annotations

import asyncio

import pytest

from quiesce.fleet.contact import StoreContact
from quiesce.testing import run_virtual

pytestmark = pytest.mark.promise("P9")


async def lost_after(lease: float, attempt: float) -> float | None:
    """When the contact is lost, of a worker whose renewals have no answer since they began at `attempt`."""
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[float] = loop.create_future()
    contact = StoreContact(lease, lambda: lost.set_result(loop.time() - begun))
    begun = contact.trying()
    contact.renewed(begun)
    loop.call_later(attempt, contact.trying)
    await asyncio.wait((lost,), timeout=2 * lease)
    contact.close()
    return round(lost.result(), 2) if lost.done() else None


def test_the_runs_are_stopped_when_three_quarters_of_the_lease_are_over() -> None:
    assert run_virtual(lost_after(15.0, 3.75)) == 11.25
    assert run_virtual(lost_after(4.0, 1.0)) == 3.0


def test_an_attempt_that_began_late_gets_a_second() -> None:
    assert run_virtual(lost_after(4.0, 2.9)) == 3.9


def test_a_contact_that_is_renewed_is_not_lost() -> None:
    lost: list[str] = []

    async def main() -> None:
        contact = StoreContact(4.0, lambda: lost.append("lost"))
        for _ in range(10):
            contact.renewed(contact.trying())
            await asyncio.sleep(2.9)
        contact.close()

    run_virtual(main())
    assert lost == []
