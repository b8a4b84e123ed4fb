"""A tool that works with something that belongs to one run: here the orders of one user."""

from dataclasses import dataclass

from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel


@dataclass
class Shop:
    orders: dict[int, str]


@tool(context=True)
async def order_status(number: int, tool_context: ToolContext) -> str:
    """The status of an order."""
    shop: Shop = tool_context.invocation_state["shop"]
    return shop.orders[number]


agent = Agent(OpenAIModel(model_id="gpt-5-mini"), tools=[order_status], callback_handler=None)
print(agent("Where is order 7?", invocation_state={"shop": Shop({7: "on its way"})}))
