"""What the tests of the places where a stop can hit share."""

import asyncio

from quiesce import tool
from quiesce.phases import Phase
from tests.core.kit import Ended


@tool
async def quick(x: int = 0) -> str:
    """Answers at once."""
    return f"quick {x}"


@tool
async def forever() -> str:
    """Never answers."""
    await asyncio.get_running_loop().create_future()
    return "never"


def assert_cancelled(end: Ended, phase: Phase) -> None:
    assert end.reason == "cancelled"
    assert end.result.receipt.phase is phase
    assert end.result.receipt.cause.source == "user"
    assert end.result.receipt.still_running == ()
