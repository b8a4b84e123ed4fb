"""Results that are too long for a model: the middle is cut out, and the whole text is kept aside.

A result of 2 MB would be sent with each request, streamed to readers twice and stored with each commit. The model gets
the beginning and the end, and a tool that reads the rest. The whole text is a value of the conversation, saved once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from ..conversation.conversation import KEPT_RESULT
from ..errors import ConfigurationError, ToolError
from ..messages import Text, ToolResult
from .output import as_json
from .result_text import without_middle
from .tool import MIN_RESULT, Tool, is_max_result

MAX_RESULT: Final = 100_000
"""The characters of a result that a model gets by default: some 25,000 tokens, an eighth of a usual window."""

READER: Final = "read_result"
# What one conversation keeps of long results, in bytes. The oldest are dropped first.
_MAX_KEPT: Final = 20_000_000
# Room for the sentence that stands for the middle.
_NOTE: Final = 300


def checked_max_result(value: int | None) -> int | None:
    """The most characters of a result; None for no limit. Raises `ConfigurationError`."""
    if not is_max_result(value):
        raise ConfigurationError(
            f"max_result={value!r} makes no sense.", todo=f"Use {MIN_RESULT} characters or more, or None."
        )
    return value


class KeptResults:
    """The long results of one conversation. `save` keeps one in the conversation, and in its store."""

    __slots__ = ("_reader", "_save", "_values")

    def __init__(self, values: Callable[[], Mapping[str, bytes]], save: Callable[[str, bytes], None]) -> None:
        self._values: Final = values
        self._save: Final = save
        self._reader: Tool | None = None

    def fit(self, result: ToolResult, most: int | None, *, keep: bool = True) -> ToolResult:
        """The result, without its middle when it is longer than `most`; then the whole text is kept."""
        structured = result.structured_content
        if most is not None and structured is not None and len(as_json(structured)) > most:
            result = replace(result, structured_content=None)
        text = result.text
        if most is None or len(text) <= most:
            return result
        part, how = max(1, (most - _NOTE) // 2), ""
        if keep:
            self._keep(result.call_id, text)
            how = f'; {READER}(handle="{result.call_id}", offset={part}) reads on from here'
        others = tuple(part for part in result.content if not isinstance(part, Text))
        content = (Text(without_middle(text, 2 * part, how)), *others)
        return replace(result, content=content, full_length=len(text))

    def _keep(self, handle: str, text: str) -> None:
        written = text.encode()
        kept = {name: len(value) for name, value in self._values().items() if name.startswith(KEPT_RESULT) and value}
        room = _MAX_KEPT - len(written)
        for name in tuple(kept):  # in the order in which they came
            if sum(kept.values()) <= room:
                break
            self._save(name, b"")
            kept[name] = 0
        self._save(KEPT_RESULT + handle, written if room >= 0 else b"")

    @property
    def reader(self) -> Tool | None:
        """The tool that reads kept results; None when the conversation has none."""
        if not any(name.startswith(KEPT_RESULT) for name in self._values()):
            return None
        if self._reader is None:
            self._reader = Tool(self._read, name=READER, max_result=None)
        return self._reader

    async def _read(self, handle: str, offset: int = 0, length: int = 20_000) -> str:
        """Read a part of a long result whose middle was left out.

        Args:
            handle: the handle that the shortened result names
            offset: the first character, counted from 0
            length: how many characters, at most 50,000
        """
        kept = self._values().get(KEPT_RESULT + handle)
        if kept is None:
            raise ToolError(f"There is no long result with the handle {handle!r}.")
        if not kept:
            raise ToolError(f"The result {handle!r} is no longer kept: newer long results took its place.")
        text = kept.decode()
        first = min(max(0, offset), len(text))
        last = min(len(text), first + min(max(1, length), 50_000))
        more = f"; {len(text) - last:,} follow" if last < len(text) else ""
        return f"{text[first:last]}\n[characters {first:,} to {last:,} of {len(text):,}{more}]"
