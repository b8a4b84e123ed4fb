"""The tools of an MCP server that the program starts."""

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.capabilities import MCP

agent = Agent("openai:gpt-5-mini", capabilities=[MCP(local=StdioTransport("weather-mcp", []))])
print(agent.run_sync("What is the weather in Bergen?").output)
