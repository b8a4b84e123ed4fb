"""A second model that answers when the first one is overloaded."""

from quiesce import Agent, FallbackModels

agent = Agent("openai:gpt-5", middleware=[FallbackModels("openai:gpt-5-mini")])
print(agent("Good morning.").text)
