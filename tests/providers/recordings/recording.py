"""What a provider puts on the wire, what must come of it, and the answers that all of them give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quiesce.models.base import Model

from ..wire import streamed
from .source import Source

KEY = "sk-test-0123456789abcdefSECRET"
WORDS = ["The sky", " is blue", " today, said \u201cnobody\u201d \U0001f324."]
ANSWER = "".join(WORDS)
THOUGHT = "Blue, I think."
CALLS = [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]


@dataclass
class Recording:
    """One answer: its events, and what must come of them."""

    events: list[bytes]
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    input: int = 25
    output: int = 12
    reasoning: int = 0
    cache_read: int = 0
    # The first event with which the answer is complete.
    complete_at: int = -1

    @property
    def response(self) -> bytes:
        return streamed(self.events, self.content_type, self.headers)


@dataclass
class Provider:
    """A provider: how to make its model, and its recordings."""

    name: str
    make: Callable[..., Model]
    answer: Recording
    calls: Recording
    reasoning: Recording
    errors: dict[str, bytes]
    path: str
    mid_stream_error: bytes
    # By the names of the recordings: answer, calls, reasoning, mid_stream_error, and the kinds of errors.
    sources: dict[str, Source]

    def __str__(self) -> str:
        return self.name
