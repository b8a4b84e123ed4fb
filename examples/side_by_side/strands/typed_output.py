"""An answer that is an object of a given type."""

from pydantic import BaseModel
from strands import Agent
from strands.models.openai import OpenAIModel


class River(BaseModel):
    name: str
    length_km: int


agent = Agent(OpenAIModel(model_id="gpt-5-mini"), structured_output_model=River, callback_handler=None)
river = agent("Describe the Thames.").structured_output
print(f"{river.name}: {river.length_km} km")
