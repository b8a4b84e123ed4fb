"""A tool can show what a call would do."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce import Tool, tool
from quiesce.errors import InvalidTool, ToolError

pytestmark = pytest.mark.promise("P4")


def _command(arguments: dict[str, Any]) -> str:
    if arguments["times"] == 0:
        raise ToolError("nothing would be done.")
    return "bake " * arguments["times"]


@tool(preview=_command)
def bake(times: int) -> str:
    return f"baked {times}"


def test_the_preview_has_the_validated_arguments() -> None:
    assert bake.preview_text({"times": "2"}) == "bake bake "
    assert Tool(bake.function).preview_text({"times": 2}) is None


def test_a_preview_that_fails_says_so() -> None:
    assert bake.preview_text({"times": 0}) == "There is no preview: nothing would be done."
    assert "times" in str(bake.preview_text({}))
    broken = Tool(bake.function, preview=lambda arguments: arguments["none"])
    assert broken.preview_text({"times": 1}) == "There is no preview: KeyError: 'none'"


def test_a_preview_is_a_function() -> None:
    with pytest.raises(InvalidTool, match="preview='text'"):
        Tool(bake.function, preview="text")  # pyright: ignore[reportArgumentType]
