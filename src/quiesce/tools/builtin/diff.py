"""The difference between two texts, as people and models read it."""

from __future__ import annotations

import difflib


def unified_diff(path: str, before: str, after: str) -> str:
    """A unified diff; a sentence when nothing differs."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines) or (
        f"{path} stays as it is.\n"
    )
