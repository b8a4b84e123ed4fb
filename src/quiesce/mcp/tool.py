"""A tool that is described by a JSON schema instead of a Python signature."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from ..models.base import ToolSpec
from ..tools.context import ToolContext
from ..tools.tool import Tool

_CONTEXT: Final = "quiesce context"  # not a name that an argument could have


_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_LENGTH: Final = 64


def legal_names(names: Sequence[str], prefix: str) -> list[str]:
    """A name for each tool that every provider accepts, all different.

    Where two would become the same, a changed name ends in a hash of the original one, so that it is the same in every
    run.
    """
    prefixed = [prefix + name for name in names]
    legal = [_ILLEGAL.sub("_", name)[:_MAX_LENGTH] or "tool" for name in prefixed]
    counts = Counter(legal)
    return [
        name if counts[name] == 1 or name == original else f"{name[: _MAX_LENGTH - 9]}_{_digest(original)}"
        for name, original in zip(legal, prefixed, strict=True)
    ]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


class ToolAnnotations(Struct, frozen=True):
    """What a server says about one of its tools, for people and approvals. What it does not say is as in the protocol.

    title         the name of the tool, for people
    read_only     it changes nothing
    destructive   it may delete or overwrite something; without a meaning when it is read-only
    idempotent    a second call with the same arguments changes nothing more
    open_world    it reaches other systems, such as the web
    """

    title: str = ""
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class SchemaTool(Tool):
    """A tool that is described by a JSON schema. The server that runs it validates the arguments."""

    def __init__(
        self,
        call: Callable[[ToolContext, dict[str, Any]], Awaitable[Any]],
        *,
        name: str,
        description: str,
        schema: dict[str, Any],
        grace: float,
        annotations: ToolAnnotations,
    ) -> None:
        async def function(**given: Any) -> Any:
            context = given.pop(_CONTEXT)
            return await call(context, given)

        super().__init__(function, name=name, description=description, on_stop="cancel", grace=grace)
        self.annotations: Final = annotations
        """What the server says about the tool. It is not checked: a server can say anything."""
        self._schema: Final[dict[str, Any]] = {"type": "object", "properties": {}, **schema}

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool's description for a model."""
        return ToolSpec(self.name, self.description, self._schema)

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `ToolContext`."""
        return _CONTEXT

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are."""
        return dict(arguments)
