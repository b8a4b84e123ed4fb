"""An answer that is an object of a given type."""

from agents import Agent, Runner
from pydantic import BaseModel


class River(BaseModel):
    name: str
    length_km: int


agent = Agent("assistant", model="gpt-5-mini", output_type=River)
river = Runner.run_sync(agent, "Describe the Thames.").final_output_as(River)
print(f"{river.name}: {river.length_km} km")
