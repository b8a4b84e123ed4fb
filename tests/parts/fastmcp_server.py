"""A server on FastMCP, as a user of that would write it: `python fastmcp_server.py LOG [PORT]`."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from fastmcp import Context, FastMCP

LOG = Path(sys.argv[1])
server = FastMCP("shop")


@dataclass
class Size:
    size: str


@dataclass
class Stock:
    name: str
    count: int


@server.tool(annotations={"readOnlyHint": True})
def stock(name: str) -> Stock:
    """How many there are."""
    return Stock(name, 3)


@server.tool(annotations={"destructiveHint": True})
async def restock(ctx: Context, seconds: float) -> str:
    """Takes long, and reports."""
    try:
        for step in range(1000):
            await ctx.report_progress(step, 1000)
            await asyncio.sleep(seconds / 1000)
    except asyncio.CancelledError:
        LOG.write_text("cancelled")
        raise
    return "restocked"


@server.tool
async def order(ctx: Context, name: str) -> str:
    """Asks a person."""
    answer = await ctx.elicit(f"Which size of {name}?", response_type=Size)
    return f"ordered {answer.data.size}" if answer.action == "accept" else "not ordered"


if len(sys.argv) > 2:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    server.run(show_banner=False)
