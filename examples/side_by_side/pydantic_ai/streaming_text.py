"""The text of the answer, piece by piece, as it arrives."""

import asyncio

from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini")


async def main() -> None:
    async with agent.run_stream("Tell a story.") as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            print(piece, end="|", flush=True)
    print()


asyncio.run(main())
