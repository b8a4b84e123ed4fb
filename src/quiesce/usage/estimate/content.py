"""What a request is made of, as far as its price goes: pieces of text of several kinds, messages, calls and media."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...messages import CutNote, Document, Image, Message, ProviderPart, Reasoning, Text, ToolCall, ToolMessage

_SAMPLE: Final = 2048
# Neither a letter nor a space: digits and signs.
_SIGN: Final = re.compile(r"[^\w\s]|[\d_]")
_WORDY_BYTES: Final = bytes(each for each in range(128) if not _SIGN.match(chr(each)))


class Kind(StrEnum):
    """Content that costs about the same number of tokens for its length."""

    PROSE = "prose"
    CODE = "code"
    JSON = "json"
    REASONING = "reasoning"


def kind_of(text: str) -> Kind:
    """The kind of a text, from a look at its beginning."""
    sample = text[:_SAMPLE]
    if sample.lstrip()[:1] in ("{", "["):
        return Kind.JSON
    signs = len(sample.encode().translate(None, _WORDY_BYTES) if sample.isascii() else _SIGN.findall(sample))
    return Kind.PROSE if len(sample) - signs >= 0.88 * len(sample) else Kind.CODE


class TextPiece(Struct, frozen=True, gc=False):
    """A text of one kind. `units` is its size where it was counted: tokens of the vocabulary, or bytes without one."""

    kind: Kind
    text: str
    units: int | None = None
    is_call: bool = False


class MessageSize(Struct):
    """The size of some messages: their texts, and how many messages, calls and media they are.

    `optional` texts are sent again but not always billed. The size of `media` is not known here.
    """

    pieces: list[TextPiece] = []
    optional: list[TextPiece] = []
    messages: int = 0
    calls: int = 0
    media: int = 0

    def add_media(self, part: Image | Document) -> None:
        """Add a picture or a file; only the size of a plain text file is known here."""
        if isinstance(part, Document) and part.data is not None and part.media_type.startswith("text/"):
            text = part.data.decode("utf-8", "replace")
            self.pieces.append(TextPiece(kind_of(text), text))
        else:
            self.media += 1


def size_of(messages: Iterable[Message]) -> MessageSize:
    """The size of messages when they are sent. Each tool result counts as a message, as providers have it."""
    size = MessageSize()
    for message in messages:
        if isinstance(message, ToolMessage):
            size.messages += len(message.results)
            content = itertools.chain.from_iterable([result.content for result in message.results])
        else:
            size.messages += 1
            content = message.content
        for part in content:
            match part:
                case Text() | CutNote():
                    size.pieces.append(TextPiece(kind_of(part.text), part.text))
                case Reasoning():
                    # Reasoning that goes back in its encrypted form is billed, by a length that only this tells.
                    size.optional.append(TextPiece(Kind.REASONING, part.text + _encrypted(part)))
                case ProviderPart():  # what the provider makes of it is not known
                    size.optional.append(TextPiece(Kind.JSON, msgspec.json.encode(part.data).decode()))
                case ToolCall():
                    size.calls += 1
                    written = part.unparsed or msgspec.json.encode(part.arguments).decode()
                    size.pieces.append(TextPiece(Kind.JSON, part.name + written))
                case Image() | Document():
                    size.add_media(part)
    return size


def _encrypted(part: Reasoning) -> str:
    hidden = (part.provider_data or {}).get("provider") in ("openai", "azure-responses", "xai-responses")
    return part.signature or "" if hidden else ""


class Definitions(Struct, frozen=True, gc=False):
    """The definitions of a preamble as JSON: not what the provider makes of them, but as long.

    `plain_tools` are the tools without what their schemas only refer to, which not every provider writes out.
    Many providers only hold the answer to its `schema`, and bill nothing for that.
    """

    tools: str
    plain_tools: str
    schema: str


class Preamble:
    """What goes before the messages of every request of an agent: instructions, tools, the schema of the answer."""

    def __init__(
        self, instructions: str | None, tools: Iterable[Any] = (), schema: dict[str, Any] | None = None
    ) -> None:
        self.instructions = instructions or ""
        self._tools = tuple(tools)
        self._schema = schema

    def is_of(self, instructions: str | None, tools: Iterable[Any], schema: dict[str, Any] | None) -> bool:
        """Whether it was made of these."""
        same = self.instructions == (instructions or "") and self._tools == tools
        return same and (self._schema is schema or self._schema == schema)

    @cached_property
    def definitions(self) -> Definitions:
        """The tools and the schema of the answer, encoded at the first look: not every request is estimated."""
        tools = msgspec.json.encode(self._tools).decode() if self._tools else ""
        schema = "" if self._schema is None else msgspec.json.encode(self._schema).decode()
        return Definitions(tools, _without_definitions(tools) if '"$defs"' in tools else tools, schema)

    @property
    def length(self) -> int:
        """How many characters it has."""
        return len(self.instructions) + len(self.definitions.tools) + len(self.definitions.schema)

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same preamble, in every process."""
        from hashlib import blake2b  # with the first request

        text = f"{self.instructions}\0{self.definitions.tools}\0{self.definitions.schema}"
        return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _without_definitions(tools: str) -> str:
    decoded = (dict(tool) for tool in msgspec.json.decode(tools))
    kept = (tool | {"schema": {k: v for k, v in tool["schema"].items() if k != "$defs"}} for tool in decoded)
    return msgspec.json.encode(list(kept)).decode()
