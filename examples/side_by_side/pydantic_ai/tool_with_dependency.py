"""A tool that works with something that belongs to one run: here the orders of one user."""

from dataclasses import dataclass

from pydantic_ai import Agent, RunContext


@dataclass
class Shop:
    orders: dict[int, str]


agent = Agent("openai:gpt-5-mini", deps_type=Shop)


@agent.tool
async def order_status(ctx: RunContext[Shop], number: int) -> str:
    """The status of an order."""
    return ctx.deps.orders[number]


print(agent.run_sync("Where is order 7?", deps=Shop({7: "on its way"})).output)
