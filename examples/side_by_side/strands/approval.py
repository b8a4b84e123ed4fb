"""A tool that runs only after a person has agreed to it, call by call."""

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.vended_interventions.hitl import HumanInTheLoop


@tool
def refund(order: int, amount: int) -> str:
    """Refund an order."""
    return f"refunded {amount} for order {order}"


model = OpenAIModel(model_id="gpt-5-mini")
agent = Agent(model, tools=[refund], interventions=[HumanInTheLoop(ask="stdio")], callback_handler=None)
print(agent("Refund orders 1 and 2."))
