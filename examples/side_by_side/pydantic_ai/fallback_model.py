"""A second model that answers when the first one is overloaded."""

from pydantic_ai import Agent
from pydantic_ai.capabilities import ModelFallback

agent = Agent("openai:gpt-5", capabilities=[ModelFallback("openai:gpt-5-mini")])
print(agent.run_sync("Good morning.").output)
