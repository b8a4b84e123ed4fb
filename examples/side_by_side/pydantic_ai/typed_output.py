"""An answer that is an object of a given type."""

from pydantic import BaseModel
from pydantic_ai import Agent


class River(BaseModel):
    name: str
    length_km: int


agent = Agent("openai:gpt-5-mini", output_type=River)
river = agent.run_sync("Describe the Thames.").output
print(f"{river.name}: {river.length_km} km")
