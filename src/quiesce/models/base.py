"""What a model is to the loop: an async context manager that yields deltas. Leaving it is the hang-up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..events import Delta
from ..messages import Message
from ..usage.prices import Price
from ..usage.stop_policy import StopAction

StopPolicyName: TypeAlias = StopAction


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelRequest(Struct, frozen=True):
    """Everything that one model call needs."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    output_schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    settings: Mapping[str, Any] | None = None


@runtime_checkable
class Model(Protocol):
    """One model of one provider.

    `stream()` returns an async context manager whose value yields `Delta`s and ends after an `AnswerEnd`. Leaving the
    context closes the connection to the provider, at once and whatever the reason. An implementation never retries
    after it has yielded content, raises only `ModelError`s, and lets `CancelledError` pass.

    A model may have an attribute `supports_prefill`: true when a request may end with an assistant message, which the
    model then goes on with.
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
