"""A second model that answers when the first one is overloaded."""

from agents import Agent, RunConfig, Runner
from openai import APIError

agent = Agent("assistant", model="gpt-5")
try:
    result = Runner.run_sync(agent, "Good morning.")
except APIError:
    result = Runner.run_sync(agent, "Good morning.", run_config=RunConfig(model="gpt-5-mini"))
print(result.final_output)
