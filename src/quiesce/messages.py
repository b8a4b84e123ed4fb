"""Messages: the parts of a conversation, frozen and typed.

A conversation is a tuple of messages. `quiesce.conversation.validity` says when one is valid. The types serialise with
msgspec, so a conversation can be stored and sent as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct


class Outcome(StrEnum):
    """What became of one tool call. Never more than is known to be true."""

    NEVER_STARTED = "never_started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    KILLED = "killed"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Words. `cut` says that more was coming when the answer was stopped."""

    text: str
    cut: bool = False
    provider_data: dict[str, Any] | None = None


class Reasoning(Struct, frozen=True, gc=False, tag="reasoning"):
    """Thinking that the provider showed. `signature` lets that provider take it back in a later request."""

    text: str
    signature: str | None = None
    cut: bool = False
    provider_data: dict[str, Any] | None = None


class Image(Struct, frozen=True, gc=False, tag="image"):
    """A picture: as bytes, by address, or by the id of a file that was uploaded to the provider.

    `detail` is how closely OpenAI's models look at it; other providers have no such choice.
    """

    media_type: str = "image/png"
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class Document(Struct, frozen=True, gc=False, tag="document"):
    """A file for the model to read: as bytes, by address, or by the id of a file that was uploaded to the provider."""

    media_type: str = "application/pdf"
    data: bytes | None = None
    url: str | None = None
    name: str | None = None
    file_id: str | None = None


class Audio(Document, frozen=True, gc=False, tag="audio"):
    """Speech or music for the model to hear."""

    media_type: str = "audio/wav"


class Video(Document, frozen=True, gc=False, tag="video"):
    """A film for the model to watch."""

    media_type: str = "video/mp4"


class ToolCall(Struct, frozen=True, gc=False, tag="tool_call"):
    """The model asks for a tool. `unparsed` holds what it wrote when that was not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any]
    unparsed: str | None = None
    provider_data: dict[str, Any] | None = None


class ProviderPart(Struct, frozen=True, gc=False, tag="provider_part"):
    """Something that only one provider has: a web search and its results, a generated image, citations.

    `kind` is the provider's name for it, and `data` is what the provider sent. It is sent back unchanged to that
    provider, and to no other.
    """

    provider: str
    kind: str
    data: dict[str, Any]


class CutNote(Struct, frozen=True, gc=False, tag="cut_note"):
    """The one sentence that tells the model that its answer was stopped here. Quiesce wrote it, not the model."""

    text: str


ResultContent: TypeAlias = Text | Image | Document | Audio | Video


class ToolResult(Struct, frozen=True, gc=False, tag="tool_result"):
    """The answer to one `ToolCall`: what the tool returned, or a true sentence about why it returned nothing."""

    call_id: str
    name: str
    content: tuple[ResultContent, ...]
    outcome: Outcome = Outcome.COMPLETED
    is_error: bool = False
    full_length: int | None = None
    """The characters of the whole text, when the middle of it was left out here."""
    structured_content: dict[str, Any] | None = None
    """What an MCP server sent for programs beside `content`. Models do not get it. None when it is too long."""

    @property
    def text(self) -> str:
        """The words of the result, each part on a line of its own."""
        return "\n".join([part.text for part in self.content if isinstance(part, Text)])


UserContent: TypeAlias = Text | Image | Document | Audio | Video
AssistantContent: TypeAlias = Text | Reasoning | ToolCall | CutNote | ProviderPart


class UserMessage(Struct, frozen=True, tag="user", weakref=True):
    """What the person said."""

    content: tuple[UserContent, ...]

    @property
    def text(self) -> str:
        """The words of the message."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


class AssistantMessage(Struct, frozen=True, tag="assistant", weakref=True):
    """What the model said and asked for. `cut` says that a stop or an error ended it early."""

    content: tuple[AssistantContent, ...]
    model: str | None = None
    cut: bool = False

    @property
    def text(self) -> str:
        """The model's own words, without reasoning and without the note about a cut."""
        return "".join([part.text for part in self.content if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that this message asks for, in order."""
        return tuple([part for part in self.content if isinstance(part, ToolCall)])


class ToolMessage(Struct, frozen=True, tag="tool", weakref=True):
    """The results of every call of the assistant message before it, in the order of the calls."""

    results: tuple[ToolResult, ...]

    @property
    def text(self) -> str:
        """The words of all results, each on lines of its own."""
        return "\n".join(result.text for result in self.results)


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
Prompt: TypeAlias = str | UserMessage | Sequence[str | UserContent]
