"""The answer of a server that was made to write a call: JSON that fits a schema, in place of a text."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from ...events import AnswerEnd, Delta, TextDelta
from ..base import ToolSpec
from ..wire.failures import Failures
from .openai_chat import ChatDecoder
from .whole_calls import WholeCalls


class _Call(Struct):
    name: str
    arguments: dict[str, Any]


_decode: Final = msgspec.json.Decoder(_Call).decode


def call_schema(tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    """The schema of a call of one of these tools."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": tool.schema},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class ForcedCallDecoder(ChatDecoder):
    """Decodes the chunks of one answer, whose text is a call. A text that was cut before it was one stays a text."""

    def __init__(self, failures: Failures, *, provider: str, first_call: int) -> None:
        super().__init__(failures, provider=provider)
        self._call: Final = WholeCalls(first_call)
        self._written: Final[list[str]] = []

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """One chunk."""
        found: list[Delta] = []
        super().take(name, data, found)
        for delta in found:
            if isinstance(delta, TextDelta):
                self._written.append(delta.text)
            elif isinstance(delta, AnswerEnd):
                into.append(self._made_a_call(delta, into))
            else:
                into.append(delta)

    def _made_a_call(self, end: AnswerEnd, into: list[Delta]) -> AnswerEnd:
        written = "".join(self._written)
        try:
            call = _decode(written)
        except msgspec.MsgspecError:
            into.extend([TextDelta(written)] if written else [])
            return end
        self._call.take(None, call.name, call.arguments, into)
        return AnswerEnd("tool_use")
