"""Clients that belong to an event loop, because their connections do."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

_T = TypeVar("_T")


class PerLoop(Generic[_T]):
    """One client for each event loop, because connections belong to the loop that opened them.

    A client is closed when its loop shuts down, which closes the async generator that waits in it, and when the model
    is dropped. Nothing but the finalizer holds the clients then: dropped together with the model, their connections
    would be closed by the garbage collector, with warnings.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._make: Final = make
        self._close: Final = close
        self._kept: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _KeptClient[_T]]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock: Final = threading.Lock()
        weakref.finalize(self, _close_later, self._kept).atexit = False

    async def get(self) -> _T:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            kept = self._kept.get(loop)
            if kept is not None:
                return kept.client
            for closed in [each for each in self._kept if each.is_closed()]:
                del self._kept[closed]
            kept = self._kept[loop] = _KeptClient(self._make(), self._close)
        await kept.closed_with_loop()
        return kept.client

    async def aclose(self) -> None:
        """Close the client of the running loop, if there is one."""
        with self._lock:
            kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.aclose()


class _KeptClient(Generic[_T]):
    """A client, which is closed once: when its loop shuts down, or before. The two may come at the same time."""

    def __init__(self, client: _T, close: Callable[[_T], Awaitable[None]]) -> None:
        self.client: Final = client
        self._close: Final = close
        self._closing: asyncio.Event | None = None
        self._at_end: Final = self._close_at_end()

    async def closed_with_loop(self) -> None:
        """From now on, a loop that shuts down closes the client, with its async generators."""
        await anext(self._at_end)

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close_once()

    async def aclose(self) -> None:
        """Close it now."""
        await self._close_once()
        with suppress(RuntimeError):  # the loop shuts down, and is closing the generator as well
            await self._at_end.aclose()

    async def _close_once(self) -> None:
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        try:
            await self._close(self.client)
        finally:
            self._closing.set()


_closing: Final[set[asyncio.Task[None]]] = set()


def _close_later(kept: Mapping[asyncio.AbstractEventLoop, _KeptClient[Any]]) -> None:
    """Close clients, each in its own loop. Called in whichever thread collects the garbage."""
    for loop, client in list(kept.items()):
        with suppress(RuntimeError):  # the loop has closed, and the client with it
            loop.call_soon_threadsafe(_close_now, loop, client)


def _close_now(loop: asyncio.AbstractEventLoop, client: _KeptClient[Any]) -> None:
    task = loop.create_task(_finish(client), name="closing the connections of a model")
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _finish(client: _KeptClient[Any]) -> None:
    with suppress(Exception):
        await client.aclose()
