"""What was found, as a plain table."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import prompts

Found = Mapping[str, Any]  # one trial, as the harness prints it
Column = tuple[str, Callable[[Sequence[Found]], str]]


def table(title: str, columns: Sequence[Column], rows: Mapping[str, Sequence[Found] | str]) -> str:
    """One scenario. A row that is a text says why there are no figures."""
    heads = ["", *(name for name, _ in columns)]
    cells = [
        [label, *(show(found) for _, show in columns)] for label, found in rows.items() if not isinstance(found, str)
    ]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    widths[0] = max(map(len, rows))
    lines = [title, *(_line(row, widths) for row in [heads, *cells])]
    lines += [f"  {label:<{widths[0]}}  could not be run: {why}" for label, why in rows.items() if isinstance(why, str)]
    return "\n".join(lines)


def _line(row: Iterable[str], widths: Iterable[int]) -> str:
    return ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()


# --- Cells ----------------------------------------------------------------------------------------------------------


def _milliseconds(name: str, missing: str) -> Callable[[Sequence[Found]], str]:
    def show(found: Sequence[Found]) -> str:
        times = [each[name] for each in found if each[name] is not None]
        if not times:
            return missing
        text = f"{_ms(statistics.median(times))} ({_ms(max(times))})"
        late = len(found) - len(times)
        return f"{text}, {late} {missing}" if late else text

    return show


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _said(read: Callable[[Found], str]) -> Callable[[Sequence[Found]], str]:
    """The one answer of all trials; or each with how often it came."""

    def show(found: Sequence[Found]) -> str:
        counts = Counter(read(each) for each in found)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{text}: {count}" for text, count in counts.most_common())

    return show


def _accepted(rules: str) -> Callable[[Found], str]:
    def read(each: Found) -> str:
        if str(each["next"]).startswith("not sent"):
            return str(each["next"])
        if each[rules]:
            return f"no: {each[rules][0].partition(': ')[2]}"
        # The server answers by the strict rules; what these refuse it cannot have answered.
        return "yes" if each["next"] == "answered" or each["strict_faults"] else "taken, but no answer was shown"

    return read


def _yes(name: str) -> Callable[[Found], str]:
    return lambda each: "yes" if each[name] else "no"


def _number(name: str, form: str) -> Callable[[Sequence[Found]], str]:
    return lambda found: format(statistics.median(each[name] for each in found), form)


def _range(name: str) -> Callable[[Sequence[Found]], str]:
    return lambda found: f"{min(each[name] for each in found):.1f} to {max(each[name] for each in found):.1f}"


_PROMPT: Column = ("prompt kept", _said(lambda each: each["prompt_kept"]))
_NEXT: list[Column] = [
    ("next prompt: OpenAI", _said(_accepted("openai_faults"))),
    ("strictest", _said(_accepted("strict_faults"))),
]
_STREAM: list[Column] = [
    ("closed, ms", _milliseconds("close_ms", "not within 5 s")),
    ("returned, ms", _milliseconds("return_ms", "not within 10 s")),
    _PROMPT,
    ("words kept", _said(lambda each: each["kept"])),
]

SCENARIOS: dict[str, tuple[str, list[Column]]] = {
    "stalled": (
        "A1. The provider stalls after some words; the run is stopped",
        [*_STREAM, ("usage, in/out", _said(lambda each: each["usage"])), *_NEXT],
    ),
    "flowing": (
        "A2. The provider sends a chunk every 20 ms; the run is stopped",
        [*_STREAM, ("bytes after", _number("bytes_after", ",.0f")), *_NEXT],
    ),
    "tools": (
        "B. One tool has finished, one blocks for 3 s; the run is stopped",
        [
            ("returned, ms", _milliseconds("return_ms", "not within 10 s")),
            _PROMPT,
            ("finished result kept", _said(lambda each: each["kept"])),
            ("effect after the end", _said(_yes("effect_after_end"))),
            ("effect at all", _said(_yes("effect"))),
            *_NEXT,
        ],
    ),
    "points": (
        "C. A run with one tool call, stopped at every point of the event loop",
        [
            ("points", _said(lambda each: f"{each['points']} of {each['total']}")),
            ("not ended within 10 s", _said(lambda each: str(each["hung"]))),
            ("all is kept", _said(lambda each: str(each["points"] - each["refused"] - each["lost"]))),
            ("prompt lost", _said(lambda each: str(each["prompt_lost"]))),
            ("shown text lost", _said(lambda each: str(each["text_lost"]))),
            ("finished result lost", _said(lambda each: str(each["result_lost"]))),
            ("next prompt refused", _said(lambda each: str(each["refused"]))),
            ("by the strictest", _said(lambda each: str(each["strict"]))),
        ],
    ),
    "many": (
        "D. 50 runs in one process, their providers stalled; all are stopped",
        [
            ("last one closed, ms", _milliseconds("close_ms", "not within 5 s")),
            ("last one returned, ms", _milliseconds("return_ms", "not within 10 s")),
            ("CPU for one run, ms", _number("run_cpu_ms", ".1f")),
            ("memory for one run, KB", _number("run_kb", ",.0f")),
        ],
    ),
    "chunks": (
        "E. An answer of 5,000 chunks: CPU time as a ratio to a bare client",
        [
            ("ratio", _number("ratio", ".1f")),
            ("from, to", _range("ratio")),
            ("bare, us/chunk", _number("bare_us", ".1f")),
        ],
    ),
    "turns": (
        f"F. {prompts.TURN_COUNT} tool turns and an answer: CPU time as a ratio to a bare client",
        [
            ("ratio", _number("ratio", ".1f")),
            ("from, to", _range("ratio")),
            ("CPU for one turn, ms", _number("turn_ms", ".1f")),
        ],
    ),
    "imports": (
        "G. The imports of a first program, in a fresh process",
        [("CPU, ms", _number("import_ms", ",.0f")), ("memory, MB", _number("import_mb", ".0f"))],
    ),
}

# How many trials each scenario has, for so many of the first.
TRIALS: dict[str, Callable[[int], int]] = {"points": lambda _: 1, "many": lambda trials: min(trials, 3)}
