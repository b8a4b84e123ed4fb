"""Tool calls that arrive whole and mostly without ids, as some providers send them."""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import Delta, ToolCallArguments, ToolCallEnd, ToolCallStart


class WholeCalls:
    """The calls of one answer. Those without an id are numbered; `first` is the number of the first one."""

    def __init__(self, first: int) -> None:
        self._next = first
        self.any = False
        """Whether there was one."""

    def take(
        self,
        call_id: str | None,
        name: str,
        arguments: dict[str, Any] | str | None,
        into: list[Delta],
        *,
        provider_data: dict[str, Any] | None = None,
    ) -> None:
        """One call, from its beginning to its end."""
        given = call_id or f"call_{self._next}"
        self._next += 1
        self.any = True
        written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        into += [ToolCallStart(given, name, provider_data), ToolCallArguments(given, written), ToolCallEnd(given)]
