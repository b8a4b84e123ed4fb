"""The format of a provider's messages: the JSON block for each part of a conversation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

from ... import messages
from .attachments import sendable
from .convert import NO_ANSWER, is_from

MessageBlock: TypeAlias = dict[str, Any]


class MessageFormat(ABC):
    """Converts messages for a provider whose messages are lists of blocks, with tool results in user messages.

    Only reasoning that `provider` has signed is sent back. Other reasoning is left out.
    """

    provider: ClassVar[str]
    assistant: ClassVar[str] = "assistant"
    blocks: ClassVar[str] = "content"

    @abstractmethod
    def text(self, text: str) -> MessageBlock:
        """A text."""

    @abstractmethod
    def image(self, part: messages.Image) -> MessageBlock:
        """An image. Raises `RequestRejected` where it cannot be sent."""

    @abstractmethod
    def document(self, part: messages.Document) -> MessageBlock:
        """A document. Raises `RequestRejected` where it cannot be sent."""

    @abstractmethod
    def call(self, call: messages.ToolCall) -> MessageBlock:
        """A tool call."""

    @abstractmethod
    def reasoning(self, part: messages.Reasoning) -> MessageBlock:
        """Reasoning that the provider has signed."""

    @abstractmethod
    def result(self, result: messages.ToolResult) -> Iterable[MessageBlock]:
        """The result of a tool call."""

    def message(self, message: messages.Message) -> dict[str, Any]:
        """A message. Never without a block: that would be refused."""
        match message:
            case messages.UserMessage(content):
                return {"role": "user", self.blocks: self.user_blocks(content)}
            case messages.AssistantMessage(content):
                return {"role": self.assistant, self.blocks: self.assistant_blocks(content) or [self.text(NO_ANSWER)]}
            case messages.ToolMessage(results):
                taken = (sendable(result, self.part) for result in results)
                return {"role": "user", self.blocks: [block for result in taken for block in self.result(result)]}

    def items(self, message: messages.Message) -> tuple[dict[str, Any], ...]:
        """A message, as a provider's messages, of which it is one."""
        return (self.message(message),)

    def user_blocks(self, content: Iterable[messages.UserContent]) -> list[MessageBlock]:
        """The blocks of a user message."""
        return [self.part(part) for part in content]

    def part(self, part: messages.UserContent) -> MessageBlock:
        """One part of a user message or of a tool result."""
        match part:
            case messages.Text(text):
                return self.text(text)
            case messages.Image():
                return self.image(part)
            case messages.Document():
                return self.document(part)

    def assistant_blocks(self, content: Iterable[messages.AssistantContent]) -> list[MessageBlock]:
        """The blocks of an assistant message, without reasoning that the provider would refuse."""
        blocks: list[MessageBlock] = []
        for part in content:
            match part:
                case messages.Text(text) | messages.CutNote(text):
                    blocks.append(self.text(text))
                case messages.ToolCall():
                    blocks.append(self.call(part))
                case messages.Reasoning():
                    if is_from(self.provider, part):
                        blocks.append(self.reasoning(part))
                case messages.ProviderPart():
                    if part.provider == self.provider:
                        self.add_provider_part(part, blocks)
        return blocks

    def add_provider_part(self, part: messages.ProviderPart, blocks: list[MessageBlock]) -> None:
        """A part that came from this provider, after the blocks before it."""
        blocks.append(dict(part.data))
