"""The tools of an MCP server that the program starts."""

import asyncio

from agents import Agent, Runner
from agents.mcp import MCPServerStdio


async def main() -> None:
    async with MCPServerStdio({"command": "weather-mcp"}) as weather:
        agent = Agent("assistant", model="gpt-5-mini", mcp_servers=[weather])
        result = await Runner.run(agent, "What is the weather in Bergen?")
        print(result.final_output)


asyncio.run(main())
