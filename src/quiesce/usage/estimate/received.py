"""What came back of one request: the blocks of the answer, and what the provider has reported of its usage."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from .answer_count import AnswerCounter, Block


class ReportedUsage(Protocol):
    """What a provider has reported of a request so far; None where it has not."""

    @property
    def input(self) -> int | None:
        """Input tokens."""

    @property
    def output(self) -> int | None:
        """Output tokens."""

    @property
    def cache_read(self) -> int | None:
        """Cache read tokens."""

    @property
    def cache_write(self) -> int | None:
        """Cache write tokens."""

    @property
    def reasoning(self) -> int | None:
        """Reasoning tokens."""

    @property
    def final(self) -> bool:
        """Whether the figures will not change."""
        ...

    @property
    def server_tools(self) -> bool:
        """Whether tools of the provider ran, which make the input grow."""
        ...


class ReceivedAnswer(Struct, frozen=True):
    """One answer: what came back.

    `since` are the blocks as far as they came after the last report of output; None when that came before any word.
    """

    report: ReportedUsage | None = None
    blocks: tuple[Block, ...] = ()
    since: tuple[Block, ...] | None = None
    counter: AnswerCounter | None = None
    complete: bool = False
    # Whether the provider may bill more than was received: it continues after the hang-up, or ended the stream early.
    bill_goes_on: bool = False
    # Tokens that the provider is known to write after the hang-up, before it notices.
    in_flight: float = 0.0
    # What the provider's own counter makes of the request, and of the words of the answer.
    counted_input: int | None = None
    counted_output: int | None = None
