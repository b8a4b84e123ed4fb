"""An answer that may take one second and no longer."""

import asyncio

from agents import Agent, Runner

agent = Agent("assistant", model="gpt-5-mini")


async def main() -> None:
    try:
        async with asyncio.timeout(1):
            result = await Runner.run(agent, "Tell a long story.")
        print(result.final_output)
    except TimeoutError:
        print("No answer within a second.")


asyncio.run(main())
