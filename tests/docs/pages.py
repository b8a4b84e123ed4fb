"""The pages of the documentation, and what is in them: Python blocks, what these print, and links."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)

_BLOCK = re.compile(r"(?P<marks>(?:^<!--[^\n]*-->\n)*)^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANSWER = re.compile(r"^<!-- the model (says|stalls after|calls): (.+) -->$", re.MULTILINE)
_CALL = re.compile(r"(\w+) (\{.*?\})(?:; |$)")
_VENDOR = re.compile(r"[\"'](?:openai|openai-responses|anthropic):")


@dataclass
class Block:
    """A fenced block. `marks` are the comments right above it, such as `not run: needs a key` or `printed`.

    A block that names a vendor's model talks to a fake of that vendor. Marks say what the fake model answers, one for
    each request: `the model says: Hello.`, `the model stalls after: Once upon`, `the model calls: weather {"town":
    "Bergen"}; ...`.
    """

    kind: str
    body: str
    line: int
    marks: str

    @property
    def runs(self) -> bool:
        return self.kind == "python" and "not run:" not in self.marks

    @property
    def names_a_vendor(self) -> bool:
        return self.runs and _VENDOR.search(self.body) is not None

    @property
    def script(self) -> list[dict[str, Any]]:
        """What the fake model answers, as `tests.support.fake_provider` takes it."""
        return [_entry(verb, text) for verb, text in _ANSWER.findall(self.marks)]

    @property
    def is_printed(self) -> bool:
        return self.kind == "text" and "printed" in self.marks


def _entry(verb: str, text: str) -> dict[str, Any]:
    if verb == "calls":
        return {"calls": [[name, json.loads(arguments)] for name, arguments in _CALL.findall(text)]}
    return {"text": text, "stalls": verb == "stalls after"}


def blocks(text: str) -> list[Block]:
    return [
        Block(each["kind"], each["body"], text.count("\n", 0, each.start("body")) + 1, each["marks"])
        for each in _BLOCK.finditer(text)
    ]


def links(text: str) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", text))


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = _HEADING.findall(_BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def without_figures(text: str) -> str:
    """A text in which run ids and numbers do not count, because they differ each time."""
    text = re.sub(r"\b[0-9a-f]{12}\b", "<id>", text)
    return re.sub(r"\d[\d.,]*( ms| s\b)?", "<n>", text).strip()
