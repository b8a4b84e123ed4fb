"""What was measured, as tables, and their place in docs/performance.md."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Final

from ..field.environments import ROOT
from .figures import Figures
from .plan import FLOOR, LINES, NO_VOCABULARY, NOW, Measured
from .warm import READING

PAGE: Final = ROOT / "docs/performance.md"
BEGIN: Final = "<!-- rows -->\n"
END: Final = "<!-- end of rows -->\n"
_ABOUT: Final = (
    "CPU time of the client's process, and memory: the least of the rounds, the median in brackets. A ratio is the "
    "median of the ratios in each round."
)
_UNITS: Final = {
    "time": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "memory": ((2.0**20, "MB"), (2.0**10, "KB")),
}
# What else was measured in a row, with the column in which it stands.
_BESIDE: Final = {READING: ("reading the bytes alone", FLOOR), NO_VOCABULARY: (NO_VOCABULARY, NOW)}


def _unit(figure: str, least: float) -> tuple[float, str]:
    units = _UNITS["memory" if figure == "memory" else "time"]
    return next((each for each in units if least >= each[0] / 5), units[-1])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(values: Sequence[float], unit: float) -> str:
    return f"{_number(min(values) / unit)} ({_number(statistics.median(values) / unit)})" if values else ""


def _ratio(figures: Figures, to: str, figure: str) -> str:
    found = figures.ratio(NOW, to, figure)
    return "" if found is None else f"{found:.2f}"


def _lines(measured: Measured, names: Sequence[str], figure: str) -> list[str]:
    """The row for one figure, and the rows of what was measured beside it."""
    row, figures = measured.row, measured.figures
    values = {name: figures.of(name, figure) for name in (*names, *row.others, *_BESIDE)}
    unit, word = _unit(figure, min(min(each) for each in values.values() if each))
    title = row.titles.get(figure, row.title)
    rounds = max(len(each) for each in values.values())
    if rounds < row.rounds:  # a busy machine, see `ROW_SECONDS`
        title += f" (rounds: {rounds})"
    cells = ["not possible" if name in figures.failed else _cell(values[name], unit) for name in names]
    cells += _best([(values[name], name) for name in row.others], unit)
    found = [[f"{title}, {word}", *cells, _ratio(figures, LINES, figure), _ratio(figures, FLOOR, figure)]]
    found[0].append(row.wanted.get(figure, ""))
    for name, (beside, column) in _BESIDE.items():
        if values[name]:
            own = [_cell(values[name], unit) if each == column else "" for each in names]
            ratio = f"{_ratio(figures, name, figure)} of it" if name == READING else ""
            found.append([f"... {beside}", *own, "", "", "", ratio, ""])
    return [f"| {' | '.join(cells)} |" for cells in found]


def _best(others: Sequence[tuple[Sequence[float], str]], unit: float) -> list[str]:
    """The two other frameworks of the row, the better one first."""
    able = sorted((min(values), name, values) for values, name in others if values)
    found = [f"{_cell(values, unit)} {name}" for _, name, values in able]
    return [*found, "", ""][:2]


def table(measured: Sequence[Measured], names: Sequence[str], figures: Sequence[str]) -> str:
    """The rows that have these figures."""
    heads = ["", *names, "best other", "next", "Quiesce to lines", "to msgspec", "wanted"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in measured:
        for figure in figures:
            if each.figures.has(figure):
                lines += _lines(each, names, figure)
    return "\n".join(lines)


def failures(measured: Sequence[Measured]) -> str:
    """Why a client has no figures in a row."""
    found = [(each.row, name, why) for each in measured for name, why in each.figures.failed.items()]
    return "\n".join(f"- {row.title}, {name}: {why}" for row, name, why in found)


def machine(load: float) -> str:
    """When and on what it was measured."""
    today = dt.datetime.now(dt.UTC).date()
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{today}, {system}, load {load:.1f} before and {os.getloadavg()[0]:.1f} after."


def report(measured: Sequence[Measured], names: Sequence[str], profiles: str, load: float) -> str:
    """Everything that goes into the manual."""
    missing = failures(measured)
    parts = [
        machine(load),
        _ABOUT,
        table(measured, names, ("cpu", "memory")),
        "Wall time, with the server's and the proxy's part:",
        table(measured, names, ("wall",)),
        *([f"What could not be measured:\n\n{missing}"] if missing else []),
        profiles,
    ]
    return "\n\n".join(parts)


def filled(page: str, text: str) -> str:
    """The page with the text in the place of what was measured before."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for it: {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def write(text: str) -> None:
    PAGE.write_text(filled(PAGE.read_text("utf-8"), text), "utf-8")
