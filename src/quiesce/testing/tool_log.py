"""What really happened to tools, seen from inside them."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import aclosing
from typing import Any, Final, Self

from ..messages import Outcome, ToolResult
from ..tools.tool import Tool


class ToolLog:
    """Stands between a run and its tools and counts, per tool, how often each was entered and how that ended."""

    def __init__(self) -> None:
        self.entered: Final[Counter[str]] = Counter()
        self.returned: Final[Counter[str]] = Counter()
        self.raised: Final[Counter[str]] = Counter()
        self.unseen: Final[set[str]] = set()
        """Tools that run in processes of their own, where no witness can follow."""

    def watch(self, tools: dict[str, Tool]) -> None:
        """Put a witness into each tool of an agent's table."""
        for name, tool in tools.items():
            if tool.policy.on_stop == "kill":
                self.unseen.add(name)
                continue
            watched = copy.copy(tool)
            watched.__dict__["function"] = self._watched(tool)
            tools[name] = watched

    def inside(self, name: str) -> int:
        """How many calls of a tool have begun and not ended."""
        return self.entered[name] - self.returned[name] - self.raised[name]

    def _watched(self, tool: Tool) -> Any:
        name, function = tool.name, tool.function

        def sync_tool(**arguments: Any) -> Any:
            with _Entry(self, name):
                return function(**arguments)

        async def async_tool(**arguments: Any) -> Any:
            with _Entry(self, name) as entry:
                return entry.note(await function(**arguments))

        async def generator_tool(**arguments: Any) -> Any:
            with _Entry(self, name):
                async with aclosing(function(**arguments)) as steps:
                    async for step in steps:
                        yield step

        return {"sync": sync_tool, "async": async_tool, "generator": generator_tool}[tool.kind]


class _Entry:
    """One call, from entering the tool to leaving it."""

    def __init__(self, witness: ToolLog, name: str) -> None:
        self._witness: Final = witness
        self._name: Final = name
        self._cut = False

    def __enter__(self) -> Self:
        self._witness.entered[self._name] += 1
        return self

    def note(self, value: Any) -> Any:
        """A tool that says itself that it was cut, or that it failed, has not come to its own end."""
        self._cut = isinstance(value, ToolResult) and (value.is_error or value.outcome is not Outcome.COMPLETED)
        return value

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = self._witness.returned if kind is None and not self._cut else self._witness.raised
        ended[self._name] += 1
