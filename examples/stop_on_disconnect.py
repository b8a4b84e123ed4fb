"""Stream to a client that goes away: leaving the stream is the stop."""

import asyncio

from quiesce import Agent
from quiesce.events import TextDelta
from quiesce.models.scripted import Say, ScriptedModel


async def main() -> None:
    model = ScriptedModel(then=[Say("one two three four five six seven eight nine ten ", chunk=5, pause=0.01)])
    agent = Agent(model)
    received = ""
    async with agent.stream_async("Count.") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                received += event.text
            if "four" in received:
                break  # the browser tab was closed
    print(await events.run.stopped())
    print()
    print(f"The client read {received!r}")
    print(f"The agent said  {agent.messages[-1].text!r}")
    print(f"Open connections to the model: {model.open_streams}")


asyncio.run(main())
