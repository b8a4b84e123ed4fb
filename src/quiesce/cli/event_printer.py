"""The events of a run on the terminal: as a person reads them, as JSON, or as a tree at the end."""

from __future__ import annotations

from typing import Any, Final, Self

from ..events import RunEnded, TextDelta, ToolEnded, ToolStarted
from ..sessions.journal.rows import encode
from .json_lines import escaped
from .sanitize import call_line, clean, result_line
from .trace_tree import TraceTree


class EventPrinter:
    """Prints each event as it comes; a tree when the block is left, also by Ctrl-C."""

    def __init__(self, *, as_json: bool, as_tree: bool) -> None:
        self._as_json: Final = as_json
        self._tree: Final = TraceTree() if as_tree else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tree is not None:
            for line in self._tree.lines:
                print(line)

    def show(self, run_id: str, number: int, event: Any, at: float | None = None) -> None:
        """Print one event, or note it for the tree."""
        if self._tree is not None:
            self._tree.add(event, at)
        elif self._as_json:
            print(escaped(f'{{"run":"{run_id}","number":{number},"event":{encode(event).decode()}}}'), flush=True)
        else:
            _print(event)


def _print(event: Any) -> None:
    match event:
        case TextDelta(text):
            print(clean(text), end="", flush=True)
        case ToolStarted(call):
            print(f"\n> {call_line(call.name, call.arguments)}", flush=True)
        case ToolEnded(result):
            print(result_line(result), flush=True)
        case RunEnded(receipt=receipt):
            print(f"\n{clean(str(receipt))}", flush=True)
        case _:
            pass
