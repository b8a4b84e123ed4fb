"""An answer that may take one second and no longer."""

from quiesce import Agent

agent = Agent("openai:gpt-5-mini")
result = agent("Tell a long story.", timeout=1)
print(result.text if result.finished else "No answer within a second.")
