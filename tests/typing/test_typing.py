"""The types that users see, under three type checkers: the marked lines fail, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checkers import CHECKERS, FILES, expected_lines

# basedpyright has pyright's engine.
ENGINES_AGAIN = {"pyright": pytest.mark.proof}


@pytest.mark.house
@pytest.mark.parametrize("checker", [pytest.param(name, marks=ENGINES_AGAIN.get(name, ())) for name in CHECKERS])
def test_exactly_the_marked_lines_are_errors(checker: str, tmp_path: Path) -> None:
    found = CHECKERS[checker](tmp_path)
    expected = {line for path in FILES for line in expected_lines(path)}
    assert len(expected) > 50
    unexpected = {line: message for line, message in found.items() if line not in expected}
    assert not unexpected, "\n".join(f"{name}:{line}: {text}" for (name, line), text in sorted(unexpected.items()))
    assert not expected - set(found), f"not found: {sorted(expected - set(found))}"
