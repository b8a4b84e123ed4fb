"""A tool that works with something that belongs to one run: here the orders of one user."""

from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool


@dataclass
class Shop:
    orders: dict[int, str]


@function_tool
async def order_status(ctx: RunContextWrapper[Shop], number: int) -> str:
    """The status of an order."""
    return ctx.context.orders[number]


agent = Agent[Shop]("assistant", model="gpt-5-mini", tools=[order_status])
print(Runner.run_sync(agent, "Where is order 7?", context=Shop({7: "on its way"})).final_output)
