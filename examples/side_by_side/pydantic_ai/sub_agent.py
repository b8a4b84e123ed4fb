"""An agent that another agent calls as a tool."""

from pydantic_ai import Agent, RunContext

researcher = Agent("openai:gpt-5-mini", instructions="Look facts up.")
writer = Agent("openai:gpt-5-mini")


@writer.tool
async def research(ctx: RunContext, question: str) -> str:
    """Look facts up."""
    result = await researcher.run(question, usage=ctx.usage)
    return result.output


print(writer.run_sync("How long is the Thames?").output)
