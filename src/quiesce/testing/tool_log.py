"""`ToolLog`: counts the calls of tools from inside the tools, to be compared with the receipt."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from contextlib import aclosing
from typing import Any, Final, Self

from ..messages import Outcome, ToolResult
from ..tools.big_results import READER
from ..tools.tool import Tool


class ToolLog:
    """Wraps the functions of tools and counts, for each tool, how many calls began, returned and raised."""

    def __init__(self) -> None:
        self.entered: Final[Counter[str]] = Counter()
        self.returned: Final[Counter[str]] = Counter()
        self.raised: Final[Counter[str]] = Counter()
        self.unseen: Final[set[str]] = {READER}
        """Tools that run in other processes, or that the run adds by itself: they cannot be counted."""
        self.raises_when_stopped = False
        """Whether async tools raise an error of their own when they are cancelled."""

    def watch(self, tools: dict[str, Tool]) -> None:
        """Wrap each tool in the table of an agent."""
        for name, tool in tools.items():
            self.unseen.discard(name)
            if tool.policy.on_stop == "kill":
                self.unseen.add(name)
                continue
            watched = copy.copy(tool)
            watched.__dict__["function"] = self._watched(tool)
            tools[name] = watched

    def inside(self, name: str) -> int:
        """How many calls of a tool began and have not ended."""
        return self.entered[name] - self.returned[name] - self.raised[name]

    def _watched(self, tool: Tool) -> Any:
        name, function = tool.name, tool.function

        def sync_tool(**arguments: Any) -> Any:
            with _Entry(self, name):
                return function(**arguments)

        async def async_tool(**arguments: Any) -> Any:
            with _Entry(self, name) as entry:
                try:
                    return entry.note(await function(**arguments))
                except asyncio.CancelledError:
                    if self.raises_when_stopped:
                        raise RuntimeError("injected") from None
                    raise

        async def generator_tool(**arguments: Any) -> Any:
            with _Entry(self, name):
                async with aclosing(function(**arguments)) as steps:
                    async for step in steps:
                        yield step

        return {"sync": sync_tool, "async": async_tool, "generator": generator_tool}[tool.kind]


class _Entry:
    """One call of a tool, from its begin to its end."""

    def __init__(self, tool_log: ToolLog, name: str) -> None:
        self._log: Final = tool_log
        self._name: Final = name
        self._cut = False

    def __enter__(self) -> Self:
        self._log.entered[self._name] += 1
        return self

    def note(self, value: Any) -> Any:
        """Look at the returned value: a result that says `cancelled` or is an error does not count as returned."""
        self._cut = isinstance(value, ToolResult) and (value.is_error or value.outcome is not Outcome.COMPLETED)
        return value

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = self._log.returned if kind is None and not self._cut else self._log.raised
        ended[self._name] += 1
