"""An answer that may take one second and no longer."""

from pydantic_ai import Agent
from pydantic_ai.exceptions import RunTimedOut

agent = Agent("openai:gpt-5-mini")
try:
    print(agent.run_sync("Tell a long story.", timeout=1).output)
except RunTimedOut:
    print("No answer within a second.")
