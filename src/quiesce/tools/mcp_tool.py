"""A tool that is described by a JSON schema instead of a Python signature."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..models.base import ToolSpec
from .context import ToolContext
from .tool import Tool

_CONTEXT: Final = "quiesce context"  # not a name that an argument could have


class SchemaTool(Tool):
    """Somebody else's tool: whoever runs it checks the arguments."""

    def __init__(
        self,
        call: Callable[[ToolContext, dict[str, Any]], Awaitable[Any]],
        *,
        name: str,
        description: str,
        schema: dict[str, Any],
        grace: float,
    ) -> None:
        async def function(**given: Any) -> Any:
            context = given.pop(_CONTEXT)
            return await call(context, given)

        super().__init__(function, name=name, description=description, on_stop="cancel", grace=grace)
        self._schema: Final[dict[str, Any]] = {"type": "object", "properties": {}, **schema}

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self._schema)

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `ToolContext`."""
        return _CONTEXT

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are."""
        return dict(arguments)
