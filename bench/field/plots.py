"""Two plots as SVG: what a stop leaves, and what a framework costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from .environments import ROOT

PICTURES: Final = ROOT / "docs/pictures"
Rows = Mapping[str, Sequence[Mapping[str, Any]] | str]
Bar = tuple[float, str, str]  # its share of the width, its class, its words

_WIDTH: Final = 820  # the longest words beside a full bar fit
_LABEL: Final = 150  # pixels for the names
_BAR: Final = 440
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  .kept { fill: #1a7f5a } .lost { fill: #d29922 } .refused { fill: #cf4a3e } .cost { fill: #4a76c0 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 } }
"""


def write(found: Mapping[str, Rows]) -> None:
    (PICTURES / "field-points.svg").write_text(points(found["points"]), "utf-8")
    (PICTURES / "field-cost.svg").write_text(cost(found["chunks"], found["turns"]), "utf-8")


def points(rows: Rows) -> str:
    """At which share of the points all was kept, something was lost, and the next prompt was refused."""
    bars: dict[str, list[Bar]] = {}
    for name, trials in rows.items():
        if isinstance(trials, str):
            bars[name] = [(0, "kept", "could not be run")]
            continue
        (each,) = trials
        shares = {
            "kept": each["points"] - each["refused"] - each["lost"],
            "lost": each["lost"],
            "refused": each["refused"],
        }
        words = ", ".join(f"{count} {kind}" for kind, count in shares.items() if count)
        bars[name] = [(count / max(1, each["points"]), kind, "") for kind, count in shares.items()]
        bars[name][-1] = (*bars[name][-1][:2], words)
    title = "A stop at every point of one run: all is kept, something is lost, the next prompt is refused"
    return _svg(title, [(title, bars)])


def cost(chunks: Rows, turns: Rows) -> str:
    """CPU time as a ratio to a bare client."""
    parts = [
        ("CPU time of an answer of 5,000 chunks, as a ratio to a bare client", _ratios(chunks)),
        ("CPU time of a run of tool turns, as a ratio to a bare client", _ratios(turns)),
    ]
    return _svg("What a framework costs when nothing is stopped", parts)


def _ratios(rows: Rows) -> dict[str, list[Bar]]:
    ratios = {
        name: None if isinstance(trials, str) else statistics.median(each["ratio"] for each in trials)
        for name, trials in rows.items()
    }
    most = max((ratio for ratio in ratios.values() if ratio), default=1.0)
    return {
        name: [(0, "cost", "could not be run")] if ratio is None else [(ratio / most, "cost", f"{ratio:.1f}")]
        for name, ratio in ratios.items()
    }


def _svg(label: str, parts: Sequence[tuple[str, Mapping[str, Sequence[Bar]]]]) -> str:
    lines: list[str] = []
    top = 24
    for title, bars in parts:
        lines.append(f'<text class="title" x="0" y="{top}">{escape(title)}</text>')
        top += 14
        for name, pieces in bars.items():
            lines += _row(top, name, pieces)
            top += 24
        top += 30
    size = f'width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *lines, "</svg>", ""])


def _row(top: int, name: str, pieces: Sequence[Bar]) -> list[str]:
    lines = [f'<text x="0" y="{top + 14}">{escape(name)}</text>']
    left = float(_LABEL)
    words = ""
    for share, kind, said in pieces:
        width = share * _BAR
        if width:
            lines.append(f'<rect class="{kind}" x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="16"/>')
        left += width
        words = said or words
    lines.append(f'<text class="small" x="{left + 6:.1f}" y="{top + 14}">{escape(words)}</text>')
    return lines
