"""Docstrings as reStructuredText. Ours are plain: paragraphs, `names` in single backticks, and columns of names with
their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ROW: Final = re.compile(r"^(?P<name>\S+(?:, \S+| \S+)*?)\s{2,}(?P<text>\S.*)$")
_LITERAL: Final = re.compile(r"`[^`\n]+`")


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring, in a form that Sphinx reads without a warning."""
    return [line for block in _blocks(lines) for line in (*_block(block), "")]


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []


def _block(lines: list[str]) -> list[str]:
    if lines[0].startswith((">>>", "    ", "from ", "@", "def ", "async ", "agent = ")):
        return ["::", "", *(f"    {line}" for line in lines)]
    if lines[0].rstrip() == "Args:":
        return _rows([line.strip() if not line.startswith("        ") else f" {line}" for line in lines[1:]], ": ")
    if lines[0].startswith(("- ", "* ")):
        return [_inline(line) for line in _items(lines)]
    if _ROW.match(lines[0]):
        return _rows(lines)
    if len(lines) > 1 and _ROW.match(lines[1]):
        return [_inline(lines[0]), "", *_rows(lines[1:])]
    return [_inline(" ".join(line.strip() for line in lines))]


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        if line.startswith(("- ", "* ")):
            items.append(f"* {line[2:]}")
        else:
            items[-1] += f" {line.strip()}"
    return items


def _rows(lines: list[str], separator: str = "") -> list[str]:
    """A column of names with their meaning, which may go on in indented lines, as a list."""
    items: list[list[str]] = []
    for line in lines:
        name, found, text = line.partition(separator) if separator else ("", "", "")
        match = None if separator else _ROW.match(line)
        if match:
            items.append([match["name"], match["text"]])
        elif found and not line.startswith(" "):
            items.append([name, text])
        elif items:
            items[-1][1] += f" {line.strip()}"
        else:
            items.append(["", line.strip()])
    return [f"* ``{name.strip('`')}``: {_inline(text)}" if name else f"* {_inline(text)}" for name, text in items]


def _inline(text: str) -> str:
    """Single backticks are code; everything else is text, whatever it means in reStructuredText."""
    parts: list[str] = []
    at = 0
    for match in _LITERAL.finditer(text):
        parts += [_escape(text[at : match.start()]), _code(match[0]), _after(text, match.end())]
        at = match.end()
    return "".join([*parts, _escape(text[at:])])


def _code(literal: str) -> str:
    return f"``{literal.strip('`').strip()}``"


def _after(text: str, at: int) -> str:
    return "\\ " if at < len(text) and (text[at].isalnum() or text[at] == "(") else ""


def _escape(text: str) -> str:
    if text.startswith("* "):
        return "* " + re.sub(r"([*|_\\])", r"\\\1", text[2:])
    return re.sub(r"([*|_\\])", r"\\\1", text)
