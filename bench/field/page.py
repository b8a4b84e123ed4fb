"""Everything that was found, as one text, and its place in the manual."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Mapping
from typing import Any, Final

from .environments import ROOT
from .table import SCENARIOS, table

PAGE: Final = ROOT / "docs/field.md"
BEGIN: Final = "<!-- measured -->\n"
END: Final = "<!-- end -->\n"
PICTURES: Final = """\
![A bar for each framework: at how many points of one run a stop kept all, lost something, or left a conversation that \
the provider refuses](pictures/field-points.svg)

![A bar for each framework: CPU time of an answer of 5,000 chunks and of a run of tool turns, as a ratio to a bare \
client](pictures/field-cost.svg)
"""


def report(about: Mapping[str, Any], found: Mapping[str, Any], trials: int, load: float) -> str:
    """When, on what and with which versions, then a table for each scenario."""
    today = dt.datetime.now(dt.UTC).date()
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        f"{today}, {trials} trials each: medians, the worst in brackets",
        f"{machine}, load {load:.1f} before and {os.getloadavg()[0]:.1f} after",
        "",
    ]
    width = max(map(len, about), default=0)
    for name, each in about.items():
        versions = ", ".join(f"{package} {version}" for package, version in each["versions"].items())
        lines += [f"  {name:<{width}}  {versions}", f"  {'':<{width}}  stopped with {each['how']}"]
    for scenario, (title, columns) in SCENARIOS.items():
        if found[scenario]:
            lines += ["", table(title, columns, found[scenario])]
    lines += ["", "What the model is told of the tool that was stopped"]
    for name, rows in found["tools"].items():
        if not isinstance(rows, str):
            lines += [f"  {name:<{width}}  {told}" for told in dict.fromkeys(each["told"] for each in rows)]
    return "\n".join(lines)


def filled(page: str, text: str) -> str:
    """The page with the pictures and the text in the place of what was measured before."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for it: {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}{PICTURES}\n```text\n{text}\n```\n{end}{after}"


def write(text: str) -> None:
    PAGE.write_text(filled(PAGE.read_text("utf-8"), text), "utf-8")
