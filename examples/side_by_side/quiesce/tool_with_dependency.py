"""A tool that works with something that belongs to one run: here the orders of one user."""

from dataclasses import dataclass

from quiesce import Agent, ToolContext, tool


@dataclass
class Shop:
    orders: dict[int, str]


@tool
async def order_status(ctx: ToolContext[Shop], number: int) -> str:
    """The status of an order."""
    return ctx.deps.orders[number]


agent = Agent("openai:gpt-5-mini", deps_type=Shop, tools=[order_status])
print(agent("Where is order 7?", deps=Shop({7: "on its way"})).text)
