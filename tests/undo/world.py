"""Five tools that do something, each with an undo, and an agent that calls them one after the other."""

from __future__ import annotations

import asyncio

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel


class World:
    """Five tools that do something, and the undo of each."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.tools = [self._tool(number) for number in range(5)]

    def _tool(self, number: int):
        log = self.log
        if number % 2:

            @tool(name=f"make{number}")
            def make(x: int) -> str:
                log.append(f"+{number}:{x}")
                return f"made {x}"

            @make.undo
            def unmake(x: int, result: str) -> None:
                assert result == f"made {x}"
                log.append(f"-{number}:{x}")

        else:

            @tool(name=f"make{number}")
            async def make(x: int) -> str:
                await asyncio.sleep(0)
                log.append(f"+{number}:{x}")
                return f"made {x}"

            @make.undo
            async def unmake_async(x: int, result: str) -> None:
                assert result == f"made {x}"
                await asyncio.sleep(0)
                log.append(f"-{number}:{x}")

        return make

    def agent(self, *more, **options) -> Agent:
        turns = [[Call(f"make{n}", {"x": n})] for n in range(5)]
        return Agent(ScriptedModel(*turns, *more), tools=self.tools, **options)


def done(log: list[str]) -> list[str]:
    return [entry[1:] for entry in log if entry[0] == "+"]


def undone(log: list[str]) -> list[str]:
    return [entry[1:] for entry in log if entry[0] == "-"]
