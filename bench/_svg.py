"""A line plot as SVG, written by hand: a few series over the same numbers, both axes from zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#8a8f98", "#4c6ef5", "#e8590c", "#2f9e44")
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48


def _ticks(largest: float) -> list[float]:
    """Up to five round numbers, from zero to the largest or a little above it."""
    step = 10.0 ** len(str(int(largest))) / 1000
    while step * 4 < largest:
        step *= 2 if str(step).strip("0.")[:1] in ("1", "5") else 2.5
    return [step * number for number in range(math.ceil(largest / step) + 1)]


def plot(title: str, across: str, up: str, numbers: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """The picture. Each series has one value for each of the numbers."""
    columns = _ticks(max(numbers))
    rows = _ticks(max(value for values in series.values() for value in values))

    def x(number: float) -> float:
        return LEFT + number / columns[-1] * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / rows[-1] * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        f'role="img" aria-label="{escape(title)}: {escape(up)} over {escape(across)}"',
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for row in rows:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(row):.1f}" y2="{y(row):.1f}" stroke="#e3e5e8"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(row) + 4:.1f}" text-anchor="end" fill="#444">{row:g}</text>')
    parts += [
        f'<text x="{x(column):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#444">{column:g}</text>'
        for column in columns
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle" fill="#222">{escape(across)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 22}" fill="#222">{escape(up)}</text>')
    for place, (name, values) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        line = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in zip(numbers, values, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'
            for number, value in zip(numbers, values, strict=True)
        ]
        parts.append(f'<text x="{LEFT + 12 + place * 160}" y="{TOP - 6}" fill="{colour}">● {escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
