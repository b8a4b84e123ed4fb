"""The events of a run on the terminal: as a person reads them, or as JSON."""

from __future__ import annotations

from typing import Any

from .json_lines import escaped
from .sanitize import call_line, clean, result_line


def show(run_id: str, number: int, event: Any, *, as_json: bool) -> None:
    """Print one event."""
    from ..events import RunEnded, TextDelta, ToolEnded, ToolStarted
    from ..sessions.journal.rows import encode

    if as_json:
        print(escaped(f'{{"run":"{run_id}","number":{number},"event":{encode(event).decode()}}}'), flush=True)
        return
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
