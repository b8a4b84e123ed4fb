"""One way in which an answer ends: what is on the wire, where that is documented, what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quiesce.models.base import Model

from ..recording import Provider, Recording
from ..source import Source

REFUSAL = "I'm sorry, I can't help with that."


@dataclass
class Ending:
    """One way in which an answer ends.

    fact         what the provider does
    source       what says so, and how that was checked
    kept         the parts that the answer has: the kinds of those that only this provider has, or its type
    refusal      what `result.refusal` holds
    error        the error that asks for another request
    sent_back    what the next request holds
    requests     how many requests are sent for one prompt
    """

    provider: Provider
    fact: str
    source: Source
    recording: Recording
    stop_reason: str = "end_turn"
    text: str = ""
    kept: tuple[str, ...] = ()
    refusal: str = ""
    error: str = "EmptyAnswer"
    sent_back: tuple[Any, ...] = ()
    not_sent_back: tuple[str, ...] = ()
    requests: int = 1
    calls: int = 0
    make: Callable[..., Model] | None = None
    body: dict[str, Any] = field(default_factory=dict)

    def model(self, url: str) -> Model:
        return (self.make or self.provider.make)(url)

    def __str__(self) -> str:
        return f"{self.provider.name}: {self.fact}"
