"""The agent of the picture in the README: a baker with a quick tool and a slow one, and a scripted model."""

from __future__ import annotations

import asyncio

from quiesce import Agent, ToolContext, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Used


@tool
async def check_flour(kind: str) -> str:
    """How much flour there is."""
    await asyncio.sleep(0.6)
    return f"{kind}: 12 kg"


@tool(grace=5)
async def bake(trays: int, ctx: ToolContext) -> str:
    """Bake so many trays of cinnamon knots."""
    for tray in range(1, trays + 1):
        ctx.report({"done": tray, "total": trays, "message": f"tray {tray} of {trays}"})
        await asyncio.sleep(0.5)
    return f"{trays} trays"


agent = Agent(
    ScriptedModel(
        [
            Say("I will see what flour is left, and put the knots into the oven meanwhile.", chunk=4, pause=0.06),
            Call("check_flour", {"kind": "rye"}),
            Call("bake", {"trays": 11}),
            Used(input=412, output=61),
        ],
        [
            Say("There are 12 kg of rye. You stopped the baking, so I cannot ", chunk=4, pause=0.06),
            Say("say how many trays are done. Have a look before I start again.", chunk=4, pause=0.06),
            Used(input=530, output=37),
        ],
    ),
    tools=[check_flour, bake],
    name="baker",
)
