"""The text of the answer, piece by piece, as it arrives."""

import asyncio

from quiesce import Agent

agent = Agent("openai:gpt-5-mini")


async def main() -> None:
    async for piece in agent.start("Tell a story.").text_stream():
        print(piece, end="|", flush=True)
    print()


asyncio.run(main())
