"""An agent with a model that is chosen by its name."""

from agents import Agent, Runner

agent = Agent("assistant", model="gpt-5-mini", instructions="Answer in one word.")
print(Runner.run_sync(agent, "What is the capital of France?").final_output)
