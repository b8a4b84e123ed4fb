"""A tool that runs only after a person has agreed to it, call by call."""

from quiesce import Agent, tool


@tool(requires_approval=True)
def refund(order: int, amount: int) -> str:
    """Refund an order."""
    return f"refunded {amount} for order {order}"


agent = Agent("openai:gpt-5-mini", tools=[refund])
result = agent("Refund orders 1 and 2.")
while result.interrupts:
    answers = {each.id: input(f"{each.tool_name} {each.arguments}? ") == "y" for each in result.interrupts}
    result = agent.answer(answers)
print(result.text)
