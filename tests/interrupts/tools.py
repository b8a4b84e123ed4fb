"""Tools that ask, and tools that a steered run has to wait for or may leave."""

from __future__ import annotations

import asyncio
from typing import Any

from quiesce import Approval, RunContext, ToolContext, tool


@tool(requires_approval=True)
async def pay(amount: int = 1) -> str:
    """Needs a yes."""
    await asyncio.sleep(0.5)
    return f"paid {amount}"


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
async def tip(amount: int = 1) -> str:
    """Needs a yes when it is much."""
    await asyncio.sleep(0.1)
    return f"tipped {amount}"


async def _much(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool | Approval:
    """Look at the run, wait for something, and answer with a preview."""
    ctx.state["asked about"] = arguments["amount"]
    await asyncio.sleep(0.3)
    return Approval(preview=f"+{arguments['amount']}", reason="much") if arguments["amount"] > 10 else False


@tool(requires_approval=_much)
async def lend(amount: int, currency: str = "EUR") -> str:
    """Needs a yes when it is much, which takes a moment to find out."""
    await asyncio.sleep(0.1)
    return f"lent {amount} {currency}"


@tool
async def ask(ctx: ToolContext, what: str = "name") -> str:
    """Ask two things, one after the other."""
    await asyncio.sleep(0.1)
    first = ctx.interrupt(what, reason={"what": what})
    second = ctx.interrupt("sure", reason="are you sure?")
    await asyncio.sleep(0.1)
    return f"{first}, {second}"


@tool
def ask_in_thread(ctx: ToolContext) -> str:
    """Ask from a thread."""
    return f"told {ctx.interrupt('word')}"


@tool(on_stop="finish", grace=10)
async def must_finish() -> str:
    """Work with a point of no return."""
    await asyncio.sleep(3)
    return "finished"


@tool(on_stop="abandon", grace=1)
async def may_be_left() -> str:
    """Work that may be left behind."""
    try:
        await asyncio.sleep(3)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
    return "left"
