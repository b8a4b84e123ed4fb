"""Streams torn, stalled, garbled, repeated or out of order: valid, nothing lost, accounted, and never a hang."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest

from quiesce import Agent, Retry, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ModelError
from quiesce.events import Event, ReasoningDelta, TextDelta
from quiesce.messages import AssistantMessage, Text
from quiesce.result import RunResult

from .recordings import ANSWER, PROVIDERS, Provider, Recording
from .wire import Play, Wire, chunk, head, wire

pytestmark = pytest.mark.promise("P3", "P6")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)
each_kind = pytest.mark.parametrize("kind", ["answer", "calls", "reasoning"])
LONG_ENOUGH = 20.0


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


async def one_trial(agent: Agent, provider: Provider, server: Wire, *plays: Play) -> RunResult:
    """Prompt twice: the first answer is played as given, the second is whole. Returns the first result."""
    server.plays[:] = plays
    before = len(agent.messages)
    run = agent.start("What colour?")
    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            said.append(event.text)

    run.tap(listen)
    async with asyncio.timeout(LONG_ENOUGH):
        await run.stopped()
    messages = agent.messages
    assert not faults(messages)
    kept = [
        part.text
        for message in messages[before:]
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, Text)
    ]
    assert "".join(kept) == "".join(said)
    entries = run.usage.entries
    assert len(entries) >= 1
    assert all(entry.ended != "open" for entry in entries)
    server.plays[:] = [Play(provider.answer.response)]
    async with asyncio.timeout(LONG_ENOUGH):
        again = await agent.invoke_async("Go on.")
    assert again.text == ANSWER
    assert not faults(agent.messages)
    return run.inspect().result  # type: ignore[return-value]


def place_of_the_end(recording: Recording) -> int:
    """The number of bytes with which the answer is complete."""
    before = recording.events[: recording.complete_at]
    ends = chunk(recording.events[recording.complete_at])
    size = len(head(recording.content_type, headers=recording.headers)) + sum(len(chunk(event)) for event in before)
    # A CR ends a line too, so an event that ends in CR LF is complete before its last byte.
    early = recording.events[recording.complete_at].endswith(b"\r\n")
    return size + len(ends) - len(b"\r\n") - early


async def cut_everywhere(provider: Provider, recording: Recording, places: Iterable[int]) -> tuple[int, int]:
    """Cut a response after each of these bytes. Returns how many answers were complete all the same, how many not."""
    response, end = recording.response, place_of_the_end(recording)
    complete = torn = 0
    async with wire(otherwise=Play(provider.answer.response)) as server:
        model = provider.make(server.url)
        for place in places:
            agent = Agent(model, retry=Retry(attempts=1), tools=[weather])
            # A reset may take with it what was already sent, so only after an orderly end is it known what arrived.
            orderly = place % 4 > 0
            play = Play(response[:place], then="close" if orderly else "reset")
            result = await one_trial(agent, provider, server, play)
            if result.error is None:
                complete += 1
                assert place >= end
            else:
                torn += 1
                assert isinstance(result.error, ModelError)
                assert result.stop_reason == "error"
                assert place < end or not orderly
    return complete, torn


@each_provider
@each_kind
def test_a_stream_cut_at_some_of_its_bytes(provider: Provider, kind: str) -> None:
    recording: Recording = getattr(provider, kind)
    # A prime stride, so that each kind of place is hit; all places are hit in the long programme.
    places = range(1, len(recording.response), 31)
    complete, torn = asyncio.run(cut_everywhere(provider, recording, places))
    assert torn > complete


@pytest.mark.proof
@each_provider
@each_kind
def test_a_stream_cut_at_every_byte(provider: Provider, kind: str) -> None:
    recording: Recording = getattr(provider, kind)
    complete, torn = asyncio.run(cut_everywhere(provider, recording, range(len(recording.response))))
    assert complete + torn == len(recording.response)
    assert complete > 0


@each_provider
def test_a_stream_without_framing_cut_in_each_event(provider: Provider) -> None:
    """Some servers mark the end of an answer only by closing: then a cut looks like an orderly end."""

    async def main() -> None:
        recording = provider.answer
        start = head(recording.content_type, chunked=False)
        body = b"".join(recording.events)
        async with wire(otherwise=Play(provider.answer.response)) as server:
            model = provider.make(server.url)
            for place in range(0, len(body), 61):
                agent = Agent(model, retry=Retry(attempts=1))
                await one_trial(agent, provider, server, Play(start + body[:place], then="close"))
            whole = await one_trial(
                Agent(model),
                provider,
                server,
                Play(start + body.rstrip(b"\n") if provider.name != "bedrock" else start + body, then="close"),
            )
            assert whole.text == ANSWER
            assert whole.stop_reason == "end_turn"

    asyncio.run(main())


@each_provider
@each_kind
def test_events_repeated_left_out_and_out_of_order(provider: Provider, kind: str) -> None:
    async def main() -> None:
        recording: Recording = getattr(provider, kind)
        events = recording.events
        variants: list[list[bytes]] = []
        for place in range(len(events)):
            variants.append([*events[:place], events[place], *events[place:]])
            variants.append([*events[:place], *events[place + 1 :]])
        dice = random.Random(7)
        for _ in range(10):
            variants.append(dice.sample(events, len(events)))
        async with wire(otherwise=Play(provider.answer.response)) as server:
            model = provider.make(server.url, timeout=5)
            for variant in variants:
                agent = Agent(model, retry=Retry(attempts=1), tools=[weather])
                body = b"".join(chunk(event) for event in variant)
                play = Play(head(recording.content_type) + body + b"0\r\n\r\n")
                await one_trial(agent, provider, server, play, *[Play(provider.answer.response)] * 3)

    asyncio.run(main())


@each_provider
def test_garbage(provider: Provider) -> None:
    async def main() -> None:
        recording = provider.answer
        dice = random.Random(11)
        garbled: list[bytes] = [
            b"data: {not json}\n\n",
            b"data: [1, 2, 3]\n\ndata: null\n\n",
            b'data: {"choices": 5, "type": 7, "candidates": "x"}\n\n',
            b"\n\n\n\n\n",
            b": only a comment\n\n",
            b"\xff\xfe\x00\x01" * 50,
            b"<html><body>502 Bad Gateway</body></html>\n",
            dice.randbytes(2000),
        ]
        first = recording.events[0]
        async with wire(otherwise=Play(provider.answer.response)) as server:
            model = provider.make(server.url)
            for rubbish in garbled:
                for before in (b"", b"".join(recording.events[:3])):
                    agent = Agent(model, retry=Retry(attempts=1))
                    body = chunk(before + rubbish) if before else chunk(rubbish)
                    await one_trial(agent, provider, server, Play(head(recording.content_type) + body + b"0\r\n\r\n"))
            for _ in range(30):  # one byte of an event changed
                place = dice.randrange(len(first))
                changed = first[:place] + bytes([first[place] ^ (1 << dice.randrange(8))]) + first[place + 1 :]
                body = b"".join(chunk(event) for event in [changed, *recording.events[1:]])
                agent = Agent(model, retry=Retry(attempts=1), tools=[weather])
                await one_trial(agent, provider, server, Play(head(recording.content_type) + body + b"0\r\n\r\n"))

    asyncio.run(main())


@each_provider
@pytest.mark.promise("P1", "P5")
async def test_a_stop_while_the_stream_stalls(provider: Provider) -> None:
    """Before the head, after it, and inside each event: the stop closes the connection and the agent goes on."""
    recording = provider.answer
    start = head(recording.content_type)
    stalls = [b"", start[:20], start]
    for count in range(1, len(recording.events)):
        body = b"".join(chunk(event) for event in recording.events[:count])
        stalls += [start + body, start + body[:-9]]
    async with wire(otherwise=Play(provider.answer.response)) as server:
        model = provider.make(server.url)
        for stalled in stalls:
            agent = Agent(model, stop_policy="hang_up")  # draining has its own tests
            server.waiting.clear()
            server.plays[:] = [Play(stalled, then="stall")]
            run = agent.start("What colour?")
            said: list[str] = []
            run.tap(lambda event, said=said: said.append(event.text) if isinstance(event, TextDelta) else None)
            async with asyncio.timeout(LONG_ENOUGH):
                await server.waiting.wait()
                for _ in range(20):
                    await asyncio.sleep(0)
                run.cancel("enough")
                receipt = await run.stopped()
                result = await run
            assert receipt.stop_reason in ("cancelled", "end_turn")
            assert not receipt.still_running
            assert not faults(agent.messages)
            assert result.usage.entries[0].ended in ("hung_up", "completed")
            last = agent.messages[-1]
            assert isinstance(last, AssistantMessage)
            assert last.text == "".join(said)
            assert (await agent.invoke_async("Go on.")).text == ANSWER
        assert server.stray_bytes == 0
        assert len(server.hang_ups) == len(stalls)


@each_provider
def test_an_error_in_the_middle_of_a_stream(provider: Provider) -> None:
    async def main() -> None:
        recording = provider.answer
        assert provider.mid_stream_error is not None
        async with wire(otherwise=Play(provider.answer.response)) as server:
            model = provider.make(server.url)
            for count in (0, 2):
                body = b"".join(chunk(event) for event in [*recording.events[:count], provider.mid_stream_error])
                agent = Agent(model, retry=Retry(attempts=1))
                play = Play(head(recording.content_type) + body + b"0\r\n\r\n")
                result = await one_trial(agent, provider, server, play)
                assert isinstance(result.error, ModelError)

    asyncio.run(main())


@each_provider
def test_a_stream_that_stalls_beyond_the_timeout(provider: Provider) -> None:
    async def main() -> None:
        recording = provider.reasoning
        body = b"".join(chunk(event) for event in recording.events[:3])
        async with wire(otherwise=Play(provider.answer.response)) as server:
            model = provider.make(server.url, timeout=0.05)
            for stalled in (b"", head(recording.content_type), head(recording.content_type) + body):
                agent = Agent(model, retry=Retry(attempts=1))
                run_result = await one_trial(agent, provider, server, Play(stalled, then="stall"))
                assert isinstance(run_result.error, ModelError)
                assert "time" in str(run_result.error)

    asyncio.run(main())


def test_thinking_that_was_streamed_is_an_event() -> None:
    provider = PROVIDERS[0]

    async def main() -> None:
        async with wire(provider.reasoning.response) as server:
            agent = Agent(provider.make(server.url))
            seen = [event async for event in agent.stream_async("Hm?") if isinstance(event, ReasoningDelta)]
            assert "".join(event.text for event in seen) == "Blue, I think."

    asyncio.run(main())
