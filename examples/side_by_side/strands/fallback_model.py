"""A second model that answers when the first one is overloaded."""

from strands import Agent
from strands.models.openai import OpenAIModel
from strands.models.routing import ModelRouter

router = ModelRouter([OpenAIModel(model_id="gpt-5"), OpenAIModel(model_id="gpt-5-mini")])
agent = Agent(router, callback_handler=None)
print(agent("Good morning."))
