"""The generated parts of docs/side_by_side.md. The prose between them is written by hand, and kept."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Final

from .programs import FRAMEWORKS, PROGRAMS, ROOT, Program, count_lines, count_tokens, source

PAGE: Final = ROOT / "docs" / "side_by_side.md"
_PART: Final = re.compile(
    r"(?<=<!-- generated: )(?P<name>[\w ]+)(?P<head> -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL
)
_NOT_RUN: Final = "<!-- not run: the file is run by bench/side_by_side -->"


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with new text in the parts that are named. A part that the page does not have is an error."""
    missing = parts.keys() - set(found(page))
    if missing:
        raise ValueError(f"The page has no part for {', '.join(sorted(missing))}")
    return _PART.sub(lambda part: part["name"] + part["head"] + parts.get(part["name"], part["body"]), page)


def found(page: str) -> dict[str, str]:
    """The generated parts of a page."""
    return {part["name"]: part["body"] for part in _PART.finditer(page)}


def from_files() -> dict[str, str]:
    """The parts that follow from the files of the programs alone."""
    return {"lines": _lines()} | {f"code {each.name}": _code(each) for each in PROGRAMS}


def from_run(versions: Mapping[str, str], stops: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The parts that a run has found out."""
    return {"versions": _versions(versions), "stops": _stops(stops)}


def lines_of(framework: str, program: Program) -> int:
    """The lines of code of a program."""
    return count_lines(source(framework, program).read_text())


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _head(*cells: str) -> str:
    return _row(*cells) + _row("---", *("---:" for _ in cells[1:]))


def _lines() -> str:
    rows = [_head("program", *FRAMEWORKS.values())]
    for program in PROGRAMS:
        lines = [lines_of(framework, program) for framework in FRAMEWORKS]
        anchor = re.sub(r"[^\w\- ]", "", program.title.lower()).replace(" ", "-")
        cells = (f"**{each}**" if each == min(lines) else each for each in lines)
        rows.append(_row(f"[{program.title}](#{anchor})", *cells))
    for title, count in (("all, lines", count_lines), ("all, tokens of Python", count_tokens)):
        sums = (sum(count(source(each, program).read_text()) for program in PROGRAMS) for each in FRAMEWORKS)
        rows.append(_row(title, *sums))
    return "".join(rows)


def _code(program: Program) -> str:
    ours, *others = FRAMEWORKS
    return f"{program.task}\n\n{_block(ours, program)}\n" + "\n".join(_folded(each, program) for each in others)


def _block(framework: str, program: Program) -> str:
    code = source(framework, program).read_text().partition('"""\n\n')[2]  # without the docstring, which is the task
    return f"{_NOT_RUN}\n```python\n{code}```\n"


def _folded(framework: str, program: Program) -> str:
    summary = f"<summary>{FRAMEWORKS[framework]}: {lines_of(framework, program)} lines</summary>"
    return f"<details>\n{summary}\n\n{_block(framework, program)}\n</details>\n"


def _versions(versions: Mapping[str, str]) -> str:
    named = ", ".join(f"{FRAMEWORKS[framework]} {version}" for framework, version in versions.items())
    return f"Run on {dt.datetime.now(dt.UTC).date()} with {named}.\n"


def _stops(stops: Mapping[str, Mapping[str, Any]]) -> str:
    titles = ("", "stream ended after", "connection closed while it stalled", "prompt kept", "streamed text kept")
    rows = [_row(*titles), _row(*("---" for _ in titles))]
    for framework, each in stops.items():
        seen = ("yes" if each[name] else "no" for name in ("closed", "prompt_kept", "text_kept"))
        rows.append(_row(FRAMEWORKS[framework], f"{each['ended_s']:.2f} s", *seen))
    return "".join(rows)
