"""A process of its own with a session that others want, too: `python -m tests.sessions.neighbour '{...}'`.

It starts one run as told, says on standard output how far it is, one JSON object per line, and stops the run when its
standard input says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

from quiesce import Agent, Session, tool
from quiesce.events import TextDelta
from quiesce.run.handle import wait_for
from quiesce.sessions.stores.resolve import resolve_store
from quiesce.testing import Call, Say, ScriptedModel, Stall


def tell(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


@tool(on_stop="finish", grace=60)
async def hold() -> str:
    """Hold on, whatever is said."""
    tell("holding")
    await asyncio.sleep(60)
    return "held"


SCRIPTS: dict[str, list[Any]] = {
    "answer": ["Yes."],
    "stall": [[Say("Well"), Stall()]],
    "hold": [[Call("hold")]],
}


async def follow(run: Any) -> None:
    async for event in run:
        if isinstance(event, TextDelta):
            tell("speaking")


async def watch_line(run: Any) -> None:
    while run.conversation.position is None:
        await asyncio.sleep(0.005)
    tell("in line")


async def main() -> None:
    job = json.loads(sys.argv[1])
    session = Session("s", resolve_store(job["store"]), lease=job.get("lease", 30))
    model = ScriptedModel(*SCRIPTS[job["script"]], then="Yes.")
    run = Agent(model, tools=[hold], session=session).start(job["prompt"], on_busy=job["on_busy"])
    following = [asyncio.create_task(each) for each in (follow(run), watch_line(run))]

    def on_input() -> None:
        if sys.stdin.readline():
            run.cancel("told so")

    threading.Thread(target=on_input, daemon=True).start()
    result = await wait_for(run)
    cause = result.receipt.cause
    tell(
        "ended",
        run=run.id,
        reason=result.stop_reason,
        source=None if cause is None else cause.source,
        text=result.text,
        steered=result.steered,
        unsent=[each.text for each in result.unsent],
        error=None if result.error is None else str(result.error),
    )
    for task in following:
        task.cancel()
    await asyncio.wrap_future(session.store.close())


if __name__ == "__main__":
    asyncio.run(main())
