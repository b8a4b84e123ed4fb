"""What each client of the table is: something that sends a prompt, and that can be stopped."""

from __future__ import annotations

import abc
import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

Stop = Callable[[], Awaitable[None]]


class Wire(NamedTuple):
    """How the server is reached."""

    url: str
    authority: str | None = None  # the file of the certificate authority, for TLS
    http2: bool = False

    def options(self) -> dict[str, Any]:
        """The options of an `httpx` or `httpx2` client for it. None for plain HTTP: then each has its own client."""
        if self.authority is None:
            return {}
        return {"verify": ssl.create_default_context(cafile=self.authority), "http2": self.http2}

    def base(self, kind: str) -> str:
        """The address of one kind of answer, see `bench._server`."""
        return f"{self.url}/{kind}/v1"


class Client(abc.ABC):
    """A bare client or a framework, in a process of its own. It stays for all rounds."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @abc.abstractmethod
    async def open(self) -> None:
        """Make what needs an event loop."""

    @abc.abstractmethod
    async def run(self, kind: str, turns: int) -> str:
        """Send a prompt, call the tool in each turn but the last, and return the text of the answer.

        With one turn there is no tool. Each call is a conversation of its own.
        """

    @abc.abstractmethod
    async def begin(self, kind: str) -> Stop:
        """Start a run, wait until it is in the state that `kind` names; returns what stops it and waits for its end."""

    async def at_once(self, kind: str, runs: int) -> list[str]:
        """So many runs at the same time."""
        return await asyncio.gather(*(self.run(kind, 1) for _ in range(runs)))


async def never() -> str:
    """A tool that sleeps until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


def result_of(number: int) -> str:
    """What the tool `nothing` returns."""
    return f"Nothing was done, {number} times."


async def soon(begun: asyncio.Event) -> None:
    """Wait until a run is in its state; what it had still to do is done then."""
    await asyncio.wait_for(begun.wait(), 10)
    await asyncio.sleep(0.005)
