"""The table of events in docs/events.md, from the classes: `python tools/event_table.py` writes it.

A test compares the page with it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final, get_args

from quiesce.events import Event

PAGE: Final = Path(__file__).parents[1] / "docs" / "events.md"
BEGIN: Final = "<!-- generated: events -->\n"
END: Final = "<!-- end -->\n"


def table() -> str:
    """One row for each event."""
    rows = ["| event | `type` in JSON | fields | when |", "|---|---|---|---|"]
    for kind in get_args(Event):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        about = " ".join(inspect.getdoc(kind).split("\n\n")[0].split()).replace("|", "\\|")
        rows.append(f"| `{kind.__name__}` | `{kind.__struct_config__.tag}` | {fields} | {about} |")
    return "\n".join(rows) + "\n"


def filled(page: str) -> str:
    """The page with the table as it is now."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}{table()}{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
