"""A real MCP server, made with the SDK, whose tools ask a person: over stdio, or over HTTP on a free port."""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("asking-server")
begun: list[str] = []


class Hotel(BaseModel):
    name: str


class Stay(BaseModel):
    nights: int
    breakfast: bool


def which(city: str) -> Elicit[Hotel]:
    return Elicit(f"Which hotel in {city}?", Hotel)


def how_long() -> Elicit[Stay]:
    return Elicit("How long?", Stay)


@server.tool()
async def book(
    city: str,
    hotel: Annotated[ElicitationResult[Hotel], Resolve(which)],
    stay: Annotated[ElicitationResult[Stay], Resolve(how_long)],
) -> str:
    """Book a hotel."""
    match hotel, stay:
        case AcceptedElicitation(data=where), AcceptedElicitation(data=long):
            return f"{where.name}, {long.nights} nights, breakfast: {long.breakfast}"
    return f"{hotel.action}, {stay.action}"


@server.tool()
async def book_mid_way(city: str, ctx: Context) -> str:
    """Book a hotel; what stands before the question is done each time."""
    begun.append(city)
    answer = await ctx.elicit(f"Which hotel in {city}?", Hotel)
    return f"{answer.data.name} ({len(begun)})" if answer.action == "accept" else answer.action


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if "--http" in sys.argv:
        import loopback

        loopback.serve(server.streamable_http_app())
    else:
        server.run("stdio")
