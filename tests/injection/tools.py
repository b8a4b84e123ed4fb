"""Tools that are in the middle of something in as many ways as there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from quiesce import ToolContext, ToolError, tool


@tool
async def quick(word: str = "quick") -> str:
    """Answer at once."""
    return word


@tool
async def slow(seconds: float = 5) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


@tool
def blocking(word: str = "blocked") -> str:
    """Block a thread for a moment."""
    return word


@tool(on_stop="finish", grace=10)
async def must_finish() -> str:
    """Work with a point of no return."""
    await asyncio.sleep(1)
    await asyncio.sleep(2)
    return "finished"


@tool(on_stop="abandon", grace=1)
async def may_be_left() -> str:
    """Work that may be left behind."""
    await asyncio.sleep(3)
    return "left"


@tool(grace=4)
async def slow_to_stop() -> str:
    """Needs a while to clean up."""
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
        await asyncio.sleep(1)
        raise
    return "done"


@tool(grace=1)
async def finishes_when_stopped() -> str:
    """Makes the best of a stop."""
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)
        return "half of it"
    return "all of it"


@tool
async def counting(to: int = 3) -> AsyncIterator[str]:
    """Report progress."""
    for number in range(to):
        await asyncio.sleep(1)
        yield f"{number + 1} of {to}"


@tool
async def failing() -> str:
    """Fail."""
    await asyncio.sleep(0.1)
    raise ToolError("it did not work")


@tool
async def watching(ctx: ToolContext) -> str:
    """Wait for the stop by its token, or for a while."""
    child = ctx.token.child().child()
    try:
        async with asyncio.timeout(3):
            await child.wait()
    except TimeoutError:
        return "nobody stopped me"
    return "stopped by token"


@tool
async def gives_up(ctx: ToolContext) -> str:
    """Stop the run."""
    await asyncio.sleep(0.5)
    ctx.cancel("the tool has seen enough")
    await asyncio.sleep(0.5)
    return "still here"


@tool
async def lengthy() -> str:
    """Say a lot."""
    return "a long line\n" * 200
