"""An agent with a model that is chosen by its name."""

from strands import Agent
from strands.models.openai import OpenAIModel

agent = Agent(OpenAIModel(model_id="gpt-5-mini"), system_prompt="Answer in one word.", callback_handler=None)
print(agent("What is the capital of France?"))
