"""A provider's own words for a conversation. Each has shapes of its own; the walk over what was said is the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

from ...messages import (
    AssistantContent,
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserContent,
    UserMessage,
)
from .convert import NO_ANSWER, own

Block: TypeAlias = dict[str, Any]


class Dialect(ABC):
    """For providers whose messages are blocks, the results of tools among the user's.

    `provider` is whose reasoning is taken back: what another one signed, or what was cut, is left out.
    """

    provider: ClassVar[str]
    assistant: ClassVar[str] = "assistant"
    blocks: ClassVar[str] = "content"

    @abstractmethod
    def text(self, text: str) -> Block:
        """Words, whoever says them."""

    @abstractmethod
    def image(self, part: Image) -> Block:
        """An image. Raises `RequestRejected` where it cannot be sent."""

    @abstractmethod
    def document(self, part: Document) -> Block:
        """A document. Raises `RequestRejected` where it cannot be sent."""

    @abstractmethod
    def call(self, call: ToolCall) -> Block:
        """A tool call."""

    @abstractmethod
    def thought(self, part: Reasoning) -> Block:
        """Reasoning that the provider has signed."""

    @abstractmethod
    def result(self, result: ToolResult) -> Iterable[Block]:
        """The result of a tool call."""

    def message(self, message: Message) -> dict[str, Any]:
        """A message. Never without a block: that would be refused."""
        match message:
            case UserMessage(content):
                return {"role": "user", self.blocks: self.asked(content)}
            case AssistantMessage(content):
                return {"role": self.assistant, self.blocks: self.said(content) or [self.text(NO_ANSWER)]}
            case ToolMessage(results):
                return {"role": "user", self.blocks: [block for result in results for block in self.result(result)]}

    def asked(self, content: Iterable[UserContent]) -> list[Block]:
        """What a user says and shows."""
        return [self.part(part) for part in content]

    def part(self, part: UserContent) -> Block:
        """Something that a user or a tool shows."""
        match part:
            case Text(text):
                return self.text(text)
            case Image():
                return self.image(part)
            case Document():
                return self.document(part)

    def said(self, content: Iterable[AssistantContent]) -> list[Block]:
        """What the model said before, as far as the provider takes it back."""
        said: list[Block] = []
        for part in content:
            match part:
                case Text(text) | CutNote(text):
                    said.append(self.text(text))
                case ToolCall():
                    said.append(self.call(part))
                case Reasoning():
                    if own(self.provider, part):
                        said.append(self.thought(part))
        return said
