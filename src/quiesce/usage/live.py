"""A ledger's usage, up to date at each access."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Final

from .agent_usage import AgentUsage
from .figure import Figure
from .ledger import Ledger, LedgerEntry, TokenUsage, Usage
from .prices import Cost

# Longer than any drain or look-up takes by default; `final()` waits no longer by default.
_LONGEST: Final = 60.0


class LiveUsage:
    """What has been used, up to date at each access; prints as a plain table.

    After a stop, some figures may be provisional: the provider's stream is read to its end in the background, the
    request is looked up, or the vocabulary is loaded in which it is counted. `await usage.final()` waits for that;
    `snapshot()` does not.
    """

    __slots__ = ("__weakref__", "_ledger", "_read")

    def __init__(self, ledger: Ledger | AgentUsage, read: Callable[[], Usage] | None = None) -> None:
        self._ledger: Final = ledger
        self._read: Final = read or (lambda: ledger.usage)

    def snapshot(self) -> Usage:
        """The figures of this moment, which will not change."""
        return self._read()

    async def final(self, timeout: float = _LONGEST) -> Usage:  # noqa: ASYNC109
        """Wait until no better figures will come, at most `timeout` seconds, and return what is known then."""
        import asyncio  # here, because a worker process imports this module and needs no event loop

        waiting = [asyncio.wrap_future(future) for future in self._ledger.expected()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)
        return self.snapshot()

    def wait(self, timeout: float = _LONGEST) -> Usage:
        """`final()` for a thread without an event loop."""
        concurrent.futures.wait(self._ledger.expected(), timeout=timeout)
        return self.snapshot()

    @property
    def calls(self) -> int:
        """How many requests were sent."""
        return self._ledger.usage.calls

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """One entry for each request."""
        return self.snapshot().entries

    @property
    def tokens(self) -> TokenUsage:
        """All figures."""
        return self.snapshot().tokens

    @property
    def input(self) -> Figure:
        """Tokens sent to the model, with those read from and written to its cache."""
        return self.tokens.input

    @property
    def output(self) -> Figure:
        """Tokens that the model wrote, with its reasoning."""
        return self.tokens.output

    @property
    def cost(self) -> Cost | None:
        """What it cost, with its interval; None when no price is known."""
        return self.snapshot().cost

    @property
    def is_final(self) -> bool:
        """Whether every figure of every call was reported by its provider."""
        return self.snapshot().is_final

    @property
    def is_provisional(self) -> bool:
        """Whether better figures may still come by themselves."""
        return self.snapshot().is_provisional

    def __str__(self) -> str:
        return str(self.snapshot())

    def __repr__(self) -> str:
        return f"<usage of {self.calls} model call(s): {self.input} in, {self.output} out>"
