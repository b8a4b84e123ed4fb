"""The text of the answer, piece by piece, as it arrives."""

import asyncio

from agents import Agent, Runner
from openai.types.responses import ResponseTextDeltaEvent

agent = Agent("assistant", model="gpt-5-mini")


async def main() -> None:
    result = Runner.run_streamed(agent, "Tell a story.")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="|", flush=True)
    print()


asyncio.run(main())
