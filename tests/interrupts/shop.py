"""Tools whose calls need a yes, an agent that wants to pay, and what became of its calls."""

from __future__ import annotations

import asyncio
from typing import Any

from quiesce import Agent, tool
from quiesce.messages import ToolMessage, ToolResult
from quiesce.result import RunResult
from quiesce.testing import Call, Say, ScriptedModel


class Till:
    """Tools with effects, and a record of the effects."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looked = 0

    def tools(self) -> list[Any]:
        @tool(requires_approval=True)
        async def pay(amount: int) -> str:
            await asyncio.sleep(0.01)
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        async def look() -> str:
            self.looked += 1
            return "seen"

        return [pay, look]


def shop(*amounts: int, till: Till | None = None, **options: Any) -> tuple[Agent, Till]:
    till = till or Till()
    calls = [Call("look"), *(Call("pay", {"amount": amount}) for amount in amounts)]
    model = ScriptedModel([Say("Let me pay. "), *calls], "Done.", then="Yes.")
    return Agent(model, tools=till.tools(), **options), till


def results(result: RunResult) -> dict[str, ToolResult]:
    return {each.call_id: each for m in result.messages if isinstance(m, ToolMessage) for each in m.results}
