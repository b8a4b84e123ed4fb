"""An answer that may take one second and no longer."""

import asyncio

from strands import Agent
from strands.models.openai import OpenAIModel

agent = Agent(OpenAIModel(model_id="gpt-5-mini"), callback_handler=None)


async def main() -> None:
    try:
        async with asyncio.timeout(1):
            print(await agent.invoke_async("Tell a long story."))
    except TimeoutError:
        print("No answer within a second.")


asyncio.run(main())
