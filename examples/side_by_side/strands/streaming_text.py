"""The text of the answer, piece by piece, as it arrives."""

import asyncio

from strands import Agent
from strands.models.openai import OpenAIModel

agent = Agent(OpenAIModel(model_id="gpt-5-mini"), callback_handler=None)


async def main() -> None:
    async for event in agent.stream_async("Tell a story."):
        if "data" in event:
            print(event["data"], end="|", flush=True)
    print()


asyncio.run(main())
