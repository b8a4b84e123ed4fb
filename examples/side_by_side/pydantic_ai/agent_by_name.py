"""An agent with a model that is chosen by its name."""

from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini", instructions="Answer in one word.")
print(agent.run_sync("What is the capital of France?").output)
