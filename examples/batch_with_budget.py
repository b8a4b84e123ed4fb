"""A batch job: many prompts, a few at a time, one budget and one deadline for all of them."""

import asyncio
from decimal import Decimal

from quiesce import Agent, CancellationToken, Price, RunResult
from quiesce.models.scripted import Say, ScriptedModel, Used

BUDGET = Decimal("0.02")

model = ScriptedModel(then=[Say("A fine town. "), Used(input=400, output=100)], price=Price(Decimal(3), Decimal(15)))
agent = Agent(model, instructions="Describe the town in one sentence.")


async def main() -> None:
    towns = [f"town {number}" for number in range(40)]
    batch = CancellationToken()
    few = asyncio.Semaphore(4)
    spent = Decimal(0)

    async def describe(town: str) -> RunResult[str]:
        nonlocal spent
        async with few:
            result = await agent.invoke_async(town, conversation=None, token=batch.after(60))
        if (cost := result.usage.cost) is not None:
            spent += cost.value or cost.low  # stopped before its first word, a request has only a bound
        if spent >= BUDGET:
            batch.cancel("the budget of the batch is used up")  # runs at work end, the others never send a request
        return result

    results = await asyncio.gather(*(describe(town) for town in towns))
    done = [result for result in results if result.finished]
    left = [town for town, result in zip(towns, results, strict=True) if not result.finished]
    print(f"{len(done)} described for {spent} USD, {len(left)} left for the next time, beginning with {left[0]}")
    print(f"requests sent: {len(model.requests)}")


asyncio.run(main())
