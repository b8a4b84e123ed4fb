"""An agent that another agent calls as a tool."""

from strands import Agent
from strands.models.openai import OpenAIModel

model = OpenAIModel(model_id="gpt-5-mini")
researcher = Agent(
    model, name="researcher", description="Looks facts up.", system_prompt="Look facts up.", callback_handler=None
)
writer = Agent(model, tools=[researcher], callback_handler=None)
print(writer("How long is the Thames?"))
