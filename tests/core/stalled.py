"""An agent whose model says one word and then nothing, for those who stop it from outside."""

from quiesce import Agent
from quiesce.models.scripted import Say, Stall
from tests.core.kit import scripted, until


def stalled() -> tuple[Agent, object]:
    model = scripted([Say("Well"), Stall()])
    return Agent(model), model


async def at_the_word(agent: Agent, then) -> None:
    """Do something once the model has said its word."""
    await until(lambda: agent.active_runs and getattr(agent.active_runs[0].messages[-1], "text", "") == "Well")
    then()
