"""Three tools that are stopped while they run, each in the way that suits it."""

import asyncio

from quiesce import Agent, ToolContext, tool
from quiesce.events import ToolStarted
from quiesce.models.scripted import Call, ScriptedModel


@tool
async def download(url: str) -> str:
    """Can be cut anywhere, and cleans up behind itself."""
    try:
        await asyncio.sleep(3600)
    finally:
        print(f"  download: removed what there was of {url}")
    return "downloaded"


@tool(on_stop="finish", grace=5)
async def transfer(amount: int) -> str:
    """Has a point of no return, so it is allowed to finish."""
    await asyncio.sleep(0.2)
    print(f"  transfer: {amount} sent")
    return f"{amount} sent"


@tool(grace=2)
def index(folder: str, context: ToolContext) -> str:
    """Blocks, in a thread of its own, and looks at its token between two pieces of work."""
    for number in range(1_000_000):
        if context.token.wait_sync(0.01):  # a piece of work
            print(f"  index: stopped after {number} files of {folder}")
            context.token.raise_if_cancelled()
    return "indexed"


async def main() -> None:
    calls = [
        Call("download", {"url": "https://example.org/a.iso"}),
        Call("transfer", {"amount": 5}),
        Call("index", {"folder": "docs"}),
    ]
    agent = Agent(ScriptedModel(calls), tools=[download, transfer, index])
    run = agent.start("Do all three.")
    started = 0
    async for event in run:
        started += isinstance(event, ToolStarted)
        if started == len(calls):
            run.cancel("changed my mind")
    print(await run.stopped())


asyncio.run(main())
