"""The agent of the worker processes: what it answers depends on the conversation only, so that any process can go on.

The prompt is a list of words. `work:N` calls a tool that takes N seconds and may not run twice, `again:N` one that may.
`stall` never ends; any other word is said.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from quiesce import Agent, ToolContext, tool
from quiesce.messages import AssistantMessage, ToolMessage, UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

WITNESS = "QUIESCE_TEST_WITNESS"


def note(*words: object) -> None:
    path = os.environ.get(WITNESS)
    if path:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (json.dumps([os.getpid(), *words]) + "\n").encode())
        os.close(file)


@tool
async def work(seconds: float, ctx: ToolContext) -> str:
    """Do something that must not be done twice."""
    note("start", ctx.run_id, ctx.call_id)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("stopped", ctx.run_id, ctx.call_id, time.monotonic())
        raise
    note("done", ctx.run_id, ctx.call_id)
    return "worked"


@tool(idempotent=True)
async def again(seconds: float, ctx: ToolContext) -> str:
    """Do something that may be done twice."""
    note("start", ctx.run_id, ctx.call_id)
    await asyncio.sleep(seconds)
    note("done", ctx.run_id, ctx.call_id)
    return "worked again"


class Planner:
    """Does the words of the last prompt, one in each turn."""

    name, price = "planner", None

    def stream(self, request: Any) -> Any:
        messages = list(request.messages)
        last = max(
            n for n, each in enumerate(messages) if isinstance(each, UserMessage) and "go on" not in each.text.lower()
        )
        words = messages[last].text.split()
        done = sum(isinstance(each, ToolMessage) for each in messages[last:])
        prompts = sum(isinstance(each, AssistantMessage) for each in messages)
        plan = words[done:]
        answer: list[Any] = []
        for word in plan:
            kind, _, argument = word.partition(":")
            if kind in ("work", "again"):
                answer.append(Call(kind, {"seconds": float(argument or 0)}, id=f"call_{prompts}_{done}"))
                break
            if kind == "stall":
                answer += [Say("Waiting. "), Stall()]
                break
            answer.append(Say(f"{word} "))
        return ScriptedModel(answer or [Say("Done.")]).stream(request)


agent = Agent(Planner(), tools=[work, again], name="agent")
