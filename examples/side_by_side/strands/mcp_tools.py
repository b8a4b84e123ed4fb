"""The tools of an MCP server that the program starts."""

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

weather = MCPClient(lambda: stdio_client(StdioServerParameters(command="weather-mcp")))
agent = Agent(OpenAIModel(model_id="gpt-5-mini"), tools=[weather], callback_handler=None)
print(agent("What is the weather in Bergen?"))
