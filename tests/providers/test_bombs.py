"""A few compressed bytes that stand for very many: the event loop is not held while they are unpacked."""

from __future__ import annotations

import asyncio
import gzip
import time

import msgspec
import pytest

from quiesce.errors import ModelProtocolError, ServerError
from quiesce.models.decoders.gemini import GeminiDecoder
from quiesce.models.wire.failures import Failures

from .recordings import ANTHROPIC, OPENAI_CHAT, Provider
from .test_failures import failure_of
from .wire import Play, wire

pytestmark = pytest.mark.promise("P1")

BOMB = gzip.compress(b"\0" * (48 << 20))
PACKED = b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB)


@pytest.fixture
def longest_callback(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor time of the longest callback of an event loop, as its one element."""
    run, longest = asyncio.events.Handle._run, [0.0]

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - begun)

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    return longest


@pytest.mark.parametrize("provider", [OPENAI_CHAT, ANTHROPIC], ids=str)
def test_an_answer(provider: Provider, longest_callback: list[float]) -> None:
    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        async with wire(Play(head + PACKED + BOMB)) as server:
            assert isinstance(await failure_of(provider.make(server.url)), ModelProtocolError)

    asyncio.run(main())
    assert longest_callback[0] < 0.1


def test_an_error(longest_callback: list[float]) -> None:
    async def main() -> None:
        async with wire(Play(b"HTTP/1.1 500 Oh\r\n" + PACKED + BOMB)) as server:
            assert isinstance(await failure_of(OPENAI_CHAT.make(server.url)), ServerError)

    asyncio.run(main())
    assert longest_callback[0] < 0.05


def test_a_place_far_away_in_the_arguments_of_a_call() -> None:
    pieces = [{"jsonPath": "$.days[4000000000]", "stringValue": "Monday"}]
    call = {"name": "plan", "partialArgs": pieces, "willContinue": True}
    event = msgspec.json.encode({"candidates": [{"content": {"parts": [{"functionCall": call}]}}]})
    with pytest.raises(ModelProtocolError, match="4000000000"):
        GeminiDecoder(Failures("Gemini")).feed(b"data: " + event + b"\n\n")
