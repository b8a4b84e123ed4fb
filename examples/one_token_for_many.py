"""A hundred runs of a hundred agents, all stopped by one token."""

import asyncio
from collections import Counter

from quiesce import Agent, CancellationToken
from quiesce.models.scripted import Say, ScriptedModel, Stall


async def main() -> None:
    shift = CancellationToken()
    runs = [Agent(ScriptedModel([Say("working "), Stall()])).start("Work.", token=shift) for _ in range(100)]
    runs[0].cancel("this one goes home early")
    await runs[0].stopped()
    print("active:", sum(not run.done for run in runs))

    shift.cancel("the shift is over")
    receipts = [await run.stopped() for run in runs]
    print("active:", sum(not run.done for run in runs))
    for cause, number in Counter(str(receipt.cause) for receipt in receipts).items():
        print(f"{number:>4}  {cause}")


asyncio.run(main())
