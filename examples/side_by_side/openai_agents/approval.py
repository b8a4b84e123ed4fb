"""A tool that runs only after a person has agreed to it, call by call."""

from agents import Agent, Runner, function_tool


@function_tool(needs_approval=True)
def refund(order: int, amount: int) -> str:
    """Refund an order."""
    return f"refunded {amount} for order {order}"


agent = Agent("assistant", model="gpt-5-mini", tools=[refund])
result = Runner.run_sync(agent, "Refund orders 1 and 2.")
while result.interruptions:
    state = result.to_state()
    for each in result.interruptions:
        if input(f"{each.name} {each.arguments}? ") == "y":
            state.approve(each)
        else:
            state.reject(each)
    result = Runner.run_sync(agent, state)
print(result.final_output)
