"""What a model is to the loop: an async context manager that yields deltas. Leaving it is the hang-up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

from msgspec import Struct

from ..events import Delta
from ..messages import Message
from ..usage.prices import Price
from ..usage.stop_policy import StopAction
from .server_tools import ServerTool

StopPolicyName: TypeAlias = StopAction
ToolChoice: TypeAlias = str
"""Which tools an answer may, or must, call: "auto", "none", "required", or the name of one tool."""
CachePolicy: TypeAlias = bool | Literal["5m", "1h"]
"""Whether, and how long, a provider is asked to keep the beginning of a request for the next one."""
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How long a model may think before it answers."""


class Settings(TypedDict, total=False):
    """The settings that have the same name for all providers. `Agent(settings=...)` takes a provider's own beside them.

    temperature, top_p   how much chance there is in an answer
    max_tokens           the limit on one answer
    stop_sequences       texts that end an answer
    effort               how long the model thinks; a request with a level that its model does not have is not sent
    cache                prompt caching: on or off, or how long ("5m", "1h")
    service_tier         how fast, and at what price, a request is served
    top_logprobs         how likely each token was, with so many others: in the answer's `ProviderPart`
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop_sequences: list[str]
    effort: Effort
    cache: CachePolicy
    service_tier: Literal["auto", "default", "flex", "priority"]
    top_logprobs: int


# What the providers call thinking, in settings and bodies.
_THINKING: Final = frozenset(
    {"effort", "thinking", "reasoning", "reasoning_config", "reasoningConfig", "reasoning_effort"}
)


def switches_thinking_on(settings: Mapping[str, Any] | None) -> bool:
    """Whether settings, in any provider's words, make a model think: its answer then cannot be begun for it."""
    return any(
        _is_on(value) if name in _THINKING else isinstance(value, Mapping) and switches_thinking_on(value)  # pyright: ignore[reportUnknownArgumentType]
        for name, value in (settings or {}).items()
    )


def _is_on(value: Any) -> bool:
    if isinstance(value, Mapping):
        return value.get("type") != "disabled"  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return value not in (None, False, "none", "disabled")


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelRequest(Struct, frozen=True):
    """Everything that one model call needs.

    server_tools  tools that the provider runs itself
    tool_choice   "auto" (what a provider does anyway), "none", "required", or the name of the tool to call
    cache         prompt caching, for providers that have marks for it; None for what the model is set to
    """

    messages: tuple[Message, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    server_tools: tuple[ServerTool, ...] = ()
    output_schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    settings: Mapping[str, Any] | None = None
    tool_choice: ToolChoice | None = None
    cache: CachePolicy | None = None


@runtime_checkable
class Model(Protocol):
    """One model of one provider.

    `stream()` returns an async context manager whose value yields `Delta`s and ends after an `AnswerEnd`. Leaving the
    context closes the connection to the provider, at once and whatever the reason. An implementation never retries
    after it has yielded content, raises only `ModelError`s, and lets `CancelledError` pass.

    A model may have an attribute `supports_prefill`: true when a request may end with an assistant message, which the
    model then goes on with.

    A model may have an attribute `cancels_at_once`: true when a stream that is cancelled ends without waiting for
    anything, wherever it is. A run then reads it in its own task. Any other model is read in a task of its own, which a
    stop can leave behind.
    """

    @property
    def name(self) -> str:
        """What the ledger and the receipts call this model."""
        ...

    @property
    def price(self) -> Price | None:
        """What its tokens cost, where that is known."""

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send a request; nothing is sent before the context is entered."""
        ...
