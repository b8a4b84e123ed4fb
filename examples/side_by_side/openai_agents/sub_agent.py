"""An agent that another agent calls as a tool."""

from agents import Agent, Runner

researcher = Agent("researcher", model="gpt-5-mini", instructions="Look facts up.")
writer = Agent("writer", model="gpt-5-mini", tools=[researcher.as_tool("research", "Looks facts up.")])
print(Runner.run_sync(writer, "How long is the Thames?").final_output)
