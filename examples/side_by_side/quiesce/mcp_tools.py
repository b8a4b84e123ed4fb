"""The tools of an MCP server that the program starts."""

from quiesce import Agent, MCPServer

with MCPServer.stdio("weather-mcp") as weather:
    agent = Agent("openai:gpt-5-mini", tools=[weather])
    print(agent("What is the weather in Bergen?").text)
