"""The schema of a tool: what its parameters say about themselves reaches the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from quiesce import tool
from quiesce.errors import InvalidTool

pytestmark = pytest.mark.feature


def properties(function: Any) -> dict[str, Any]:
    return tool(function).spec.schema["properties"]


def test_a_field_keeps_its_description_and_its_bounds() -> None:
    def search(
        query: Annotated[str, Field(description="What to look for", examples=["tea"], max_length=9)],
        limit: Annotated[int, Field(description="How many", ge=1, json_schema_extra={"unit": "rows"})] = 10,
    ) -> None:
        """Search."""

    found = properties(search)
    assert found["query"] == {
        "title": "Query",
        "type": "string",
        "description": "What to look for",
        "examples": ["tea"],
        "maxLength": 9,
    }
    assert found["limit"] == {
        "title": "Limit",
        "type": "integer",
        "description": "How many",
        "minimum": 1,
        "unit": "rows",
        "default": 10,
    }


def test_a_field_says_more_than_the_docstring() -> None:
    def search(query: Annotated[str, Field(description="from the field")], limit: int, page: int) -> None:
        """Search.

        Args:
            query: from the docstring
            limit: from the docstring
        """

    found = properties(search)
    assert [found[name].get("description") for name in ("query", "limit", "page")] == [
        "from the field",
        "from the docstring",
        None,
    ]


def test_a_field_as_the_default_is_refused() -> None:
    def search(limit: int = Field(default=3, description="How many")) -> None:
        """Search."""

    with pytest.raises(InvalidTool, match=r"Field\(...\) as the default of 'limit'"):
        properties(search)


@pytest.mark.parametrize("hint", ["pytest.Missing", "the path of a file", Callable[[], int]])
def test_a_type_hint_that_makes_no_schema_is_refused(hint: object) -> None:
    def look(path: Any) -> None:
        """Look."""

    look.__annotations__["path"] = hint
    with pytest.raises(InvalidTool, match="'look'"):
        properties(look)
