"""Limits on the requests of many runs: so many at once, so many in a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import Any, Final

from ..errors import ConfigurationError
from ..events import Delta, UsageDelta
from ..models.base import ModelRequest
from .base import Middleware, ModelCall, Send

# About how many characters a token has, for requests whose usage is not known yet.
_CHARACTERS: Final = 4


class ConcurrencyLimit(Middleware[Any]):
    """At most `n` requests to one model at once, in all runs that use this object, in whichever event loop.

    Requests wait in the order in which they came; `ModelCallWaiting` says so. A stop ends the wait at once. Raises
    `ConfigurationError` for a number below 1.
    """

    def __init__(self, n: int) -> None:
        self._n: Final = _count("n", n)
        self._slots: Final[dict[str, _Slots]] = {}

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Send the request when there is a slot, and give the slot back when its connection is closed."""
        slots = self._slots.setdefault(call.model.name, _Slots(self._n))
        if slots.full:
            call.note_waiting(f"a free slot: {self._n} requests to {call.model.name} at once are allowed")
        async with slots.one(), next(call) as deltas:
            yield deltas


class RateLimit(Middleware[Any]):
    """At most so many requests, or tokens, to one model in any `per` seconds, in all runs that use this object.

    requests   how many requests; None for no limit
    tokens     how many tokens, input and output together; None for no limit
    per        the length of the window in seconds

    A request counts with an estimate of its input when it is sent, and with what the provider reports when it has
    ended: requests under way can together use more tokens than the limit. One that is larger than the whole limit is
    sent when the window is empty. Requests wait in the order in which they came; `ModelCallWaiting` says so. A stop
    ends the wait at once. Raises `ConfigurationError` for limits that make no sense.
    """

    def __init__(self, *, requests: int | None = None, tokens: int | None = None, per: float = 60.0) -> None:
        if requests is None and tokens is None:
            raise ConfigurationError("RateLimit() limits nothing.", todo="Give requests=, tokens= or both.")
        self._requests: Final = None if requests is None else _count("requests", requests)
        self._tokens: Final = None if tokens is None else _count("tokens", tokens)
        if isinstance(per, bool) or not isinstance(per, int | float) or not 0 < per < float("inf"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"per={per!r} makes no sense.", todo="Use a number of seconds.")
        self._per: Final = per
        self._windows: Final[dict[str, _Window]] = {}

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Send the request when the window has room, and count what it used."""
        window = self._windows.setdefault(call.model.name, _Window(self._requests, self._tokens, self._per))
        use = _Use(_estimated_tokens(call.request))
        if window.delay(use) or window.turn.full:
            call.note_waiting(f"the rate limit of {call.model.name}: {self._describe()}")
        async with window.turn.one():
            while delay := window.take(use):  # noqa: ASYNC110 - it waits until the oldest request leaves the window
                await asyncio.sleep(delay)
        async with next(call) as deltas:
            yield use.counting(deltas)

    def _describe(self) -> str:
        limits = ((self._requests, "requests"), (self._tokens, "tokens"))
        words = " and ".join(f"{limit} {what}" for limit, what in limits if limit is not None)
        return f"{words} in {self._per:g} s"


class _Use:
    """What one request uses of a window: an estimate at first, then what the provider reports."""

    def __init__(self, tokens: int) -> None:
        self.at = 0.0
        self.tokens = tokens

    async def counting(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        """Pass the deltas on, and count the usage that they report."""
        async for delta in deltas:
            if isinstance(delta, UsageDelta):
                self.tokens = max(self.tokens, (delta.input or 0) + (delta.output or 0))
                if delta.final and delta.input is not None:
                    self.tokens = delta.input + (delta.output or 0)
            yield delta


class _Window:
    """The requests of the last seconds. All methods are safe from any thread."""

    def __init__(self, requests: int | None, tokens: int | None, per: float) -> None:
        self._requests: Final = requests
        self._tokens: Final = tokens
        self._per: Final = per
        self._lock: Final = Lock()
        self._uses: Final[deque[_Use]] = deque()
        self.turn: Final = _Slots(1)
        """Only the first of those that wait looks for room, so that no later one overtakes it."""

    def delay(self, use: _Use) -> float:
        """Seconds until this request may have room; 0 when it has room now."""
        with self._lock:
            return self._delay(use, asyncio.get_running_loop().time())

    def take(self, use: _Use) -> float:
        """Take the room for a request, or say how many seconds it must wait before it tries again."""
        now = asyncio.get_running_loop().time()
        with self._lock:
            delay = self._delay(use, now)
            if not delay:
                use.at = now
                self._uses.append(use)
            return delay

    def _delay(self, use: _Use, now: float) -> float:
        uses = self._uses
        while uses and uses[0].at + self._per <= now:
            uses.popleft()
        if not uses:
            return 0.0
        too_many = self._requests is not None and len(uses) >= self._requests
        too_large = self._tokens is not None and sum(each.tokens for each in uses) + use.tokens > self._tokens
        return uses[0].at + self._per - now if too_many or too_large else 0.0


class _Slots:
    """So many slots, taken in the order of arrival. Safe from any thread and any event loop."""

    def __init__(self, n: int) -> None:
        self._lock: Final = Lock()
        self._free = n
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()

    @property
    def full(self) -> bool:
        """Whether a request would have to wait."""
        return self._free == 0 or bool(self._waiting)

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """Wait for a slot, and give it back."""
        await self._take()
        try:
            yield
        finally:
            self._give_back()

    async def _take(self) -> None:
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(granted)
        try:
            await granted
        except BaseException:  # a cancellation, or the loop was closed around it
            with self._lock:
                was_waiting = granted in self._waiting
                if was_waiting:
                    self._waiting.remove(granted)
            if not was_waiting:  # the slot was granted in this very instant
                self._give_back()
            raise

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1
            while self._free and self._waiting:
                granted = self._waiting.popleft()
                with suppress(RuntimeError):  # its loop has closed, and its waiters with it
                    granted.get_loop().call_soon_threadsafe(_resolve, granted)
                    self._free -= 1


def _resolve(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo="Use a whole number from 1 up.")
    return value


def _estimated_tokens(request: ModelRequest) -> int:
    """About how many tokens a request is, from its text."""
    parts = (part for message in request.messages for part in getattr(message, "content", ()))
    results = (
        part for message in request.messages for each in getattr(message, "results", ()) for part in each.content
    )
    text = sum(len(getattr(part, "text", "") or "") for group in (parts, results) for part in group)
    return (text + len(request.instructions or "")) // _CHARACTERS + 1
