"""An agent that another agent calls as a tool."""

from quiesce import Agent

researcher = Agent("openai:gpt-5-mini", name="researcher", instructions="Look facts up.")
writer = Agent("openai:gpt-5-mini", tools=[researcher.as_tool(description="Looks facts up.")])
print(writer("How long is the Thames?").text)
