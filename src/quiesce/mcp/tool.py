"""A tool that is described by a JSON schema instead of a Python signature."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ..models.base import ToolSpec
from ..tools.context import ToolContext
from ..tools.tool import Tool

_CONTEXT: Final = "quiesce context"  # not a name that an argument could have


_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64


def legal_names(theirs: Sequence[str], prefix: str) -> list[str]:
    """For each name one that every provider takes, and no two the same.

    Where two would become the same, those that had to be changed end in something that depends on the name alone, so
    that it is the same again tomorrow.
    """
    wanted = [prefix + name for name in theirs]
    legal = [_ILLEGAL.sub("_", name)[:_LONGEST] or "tool" for name in wanted]
    often = Counter(legal)
    return [
        name if often[name] == 1 or name == whole else f"{name[: _LONGEST - 9]}_{_digest(whole)}"
        for name, whole in zip(legal, wanted, strict=True)
    ]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


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
