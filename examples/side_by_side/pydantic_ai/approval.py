"""A tool that runs only after a person has agreed to it, call by call."""

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls


def ask(ctx: RunContext, requests: DeferredToolRequests) -> DeferredToolResults:
    calls = requests.approvals
    answers = {each.tool_call_id: input(f"{each.tool_name} {each.args}? ") == "y" for each in calls}
    return requests.build_results(approvals=answers)


agent = Agent("openai:gpt-5-mini", capabilities=[HandleDeferredToolCalls(ask)])


@agent.tool_plain(requires_approval=True)
def refund(order: int, amount: int) -> str:
    """Refund an order."""
    return f"refunded {amount} for order {order}"


print(agent.run_sync("Refund orders 1 and 2.").output)
