"""An agent with a model that is chosen by its name."""

from quiesce import Agent

agent = Agent("openai:gpt-5-mini", instructions="Answer in one word.")
print(agent("What is the capital of France?").text)
