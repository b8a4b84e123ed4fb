"""An agent that asks before each order: its task takes one run for each answer."""

from __future__ import annotations

from typing import Any

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel


class Shop:
    """Orders that need an approval each, and can be taken back."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def agent(self, orders: int, **options: Any) -> Agent:
        @tool(requires_approval=True)
        async def order(what: str) -> str:
            self.log.append(f"+{what}")
            return f"ordered {what}"

        @order.undo
        async def withdraw(what: str, result: str) -> None:
            assert result == f"ordered {what}"
            self.log.append(f"-{what}")

        turns = [[Call("order", {"what": f"item{n}"}, id=f"o{n}")] for n in range(orders)]
        return Agent(ScriptedModel(*turns, then="All ordered."), tools=[order], **options)


def approval(number: int) -> dict[str, bool]:
    return {f"o{number}:approval": True}
