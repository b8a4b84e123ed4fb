"""A team: a lead hands parts of the work to two other agents. Stopping the lead stops the whole team."""

import asyncio

from quiesce import Agent, ToolEnded
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

researcher = Agent(
    ScriptedModel([Say("I have found two sources, and read the first. ", chunk=99), Stall()]), name="researcher"
)
writer = Agent(ScriptedModel("Here is the outline."), name="writer")
lead = Agent(
    ScriptedModel(
        [Call("researcher", {"prompt": "Find sources."}), Call("writer", {"prompt": "Write an outline."})],
        "The outline is there. The research was stopped after two sources.",
    ),
    tools=[
        researcher.as_tool(description="Finds and reads sources."),
        writer.as_tool(description="Writes."),
    ],
    name="lead",
    timeout=60,  # one deadline for the team
)


async def main() -> None:
    run = lead.start("An article about lighthouses, please.")
    async for event in run:
        if isinstance(event, ToolEnded):  # the writer is done, the researcher is still at it
            run.cancel("the deadline was moved")
    receipt = await run.stopped()
    print(receipt)
    print()
    print((await lead.invoke_async("What do you have?")).text)


asyncio.run(main())
