"""What the tests of the core share: runs that are stopped at a chosen event, and checks that every end must pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from quiesce import Agent, Run, RunResult
from quiesce.conversation.validity import faults
from quiesce.events import Delta, Event, RunEnded, TextDelta
from quiesce.messages import AssistantMessage, CutNote, Message, ToolMessage, ToolResult
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import ScriptedModel
from quiesce.retry import Retry

NO_WAIT = Retry(first=0.0, jitter=0.0)
When = Callable[[Event], bool]


@dataclass
class Record:
    """Everything that a run let its outside see, checked at every event."""

    run: Run
    when: When | None = None
    stop: Callable[[], Any] | None = None
    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    stops: int = 0

    def __post_init__(self) -> None:
        self.run.tap(self.see)

    def see(self, event: Event) -> None:
        self.events.append(event)
        self.faults.extend(f"after {type(event).__name__}: {fault}" for fault in faults(self.run.messages))
        if self.when is not None and not self.stops and self.when(event):
            self.stops += 1
            assert self.stop is not None
            self.stop()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Ended:
    """A run that has ended: its result and what was seen of it."""

    result: RunResult
    record: Record

    @property
    def events(self) -> list[Event]:
        return self.record.events

    @property
    def reason(self) -> str:
        return self.result.stop_reason

    def of(self, kind: type) -> list[Any]:
        return self.record.of(kind)


def is_a(kind: type, number: int = 1) -> When:
    """True at the `number`-th event of a kind."""
    seen = 0

    def when(event: Event) -> bool:
        nonlocal seen
        seen += isinstance(event, kind)
        return isinstance(event, kind) and seen == number

    return when


async def stopped_at(
    agent: Agent, when: When | None, *, mode: str = "now", prompt: str = "go", then: str | None = None, **options: Any
) -> Ended:
    """Run, ask for a stop in the very instant that an event happens, and check the end.

    `then` is the mode of a second stop, asked for right after the first.
    """
    run = agent.start(prompt, **options)

    def stop() -> None:
        run.cancel("the test said so", mode=mode)
        if then is not None:
            run.cancel("and again", mode=then)

    record = Record(run, when, stop)
    return await ended(run, record, agent)


async def ended(run: Run, record: Record, agent: Agent | None = None) -> Ended:
    """Wait for the end of a run, whether it failed or not, and check everything that must hold of every end."""
    await run.stopped()
    result = run.inspect().result
    check_end(Ended(result, record), agent)
    return Ended(result, record)


def check_end(end: Ended, agent: Agent | None = None) -> None:
    """P2, P3, P6 and P7, as far as they can be seen in what a run leaves."""
    record, result = end.record, end.result
    assert record.faults == []
    assert faults(result.messages) == ()
    assert isinstance(result.messages[-1], AssistantMessage), "a prompt must be able to follow"
    assert [type(event) for event in record.events].count(RunEnded) == 1
    assert isinstance(record.events[-1], RunEnded)
    assert record.events[-1].stop_reason == result.stop_reason
    assert (result.stop_reason in ("cancelled", "limit")) == (result.receipt.cause is not None)
    assert (result.stop_reason == "error") == (result.error is not None)
    streamed = "".join(event.text for event in record.events if isinstance(event, TextDelta))
    kept = "".join(message.text for message in result.new_messages if isinstance(message, AssistantMessage))
    # A block of nothing but white space is no content that a provider would take back, so it is not kept.
    assert "".join(streamed.split()) in "".join(kept.split())
    assert all(entry.ended != "open" for entry in result.usage.entries)
    if agent is not None and agent.conversation.messages[: len(result.messages)] != result.messages:
        raise AssertionError("the conversation is not what the result says")


async def answers(agent: Agent, prompt: str = "and now?") -> RunResult:
    """The same agent takes the next prompt. Its model must have one more answer."""
    result = await agent.invoke_async(prompt)
    assert result.stop_reason == "end_turn"
    assert faults(result.messages) == ()
    return result


def results(messages: tuple[Message, ...]) -> list[ToolResult]:
    """All tool results of a conversation, in order."""
    return [result for message in messages if isinstance(message, ToolMessage) for result in message.results]


def outcomes(result: RunResult) -> dict[str, str]:
    """Tool name to outcome, from the conversation; the receipt must say the same."""
    told = {each.name: each.outcome.value for each in results(result.new_messages)}
    torn = {call.name: call.outcome.value for call in result.receipt.calls if "wrote the arguments" in call.detail}
    assert told | torn == {call.name: call.outcome.value for call in result.receipt.calls}
    return told


def notes(messages: tuple[Message, ...]) -> list[str]:
    """The sentences that tell the model about cuts."""
    return [
        part.text
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, CutNote)
    ]


class HandModel:
    """A model whose every delta is given by hand, over a queue. An exception that is given is raised."""

    def __init__(self) -> None:
        self.name = "by hand"
        self.price = None
        self.requests: list[ModelRequest] = []
        self.open_streams = 0
        self.deltas: asyncio.Queue[Delta | Exception | None] = asyncio.Queue()

    def give(self, *deltas: Delta | Exception | None) -> None:
        """Have these yielded next; None ends the stream."""
        for delta in deltas:
            self.deltas.put_nowait(delta)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        self.requests.append(request)
        self.open_streams += 1
        playing = self._play()
        try:
            yield playing
        finally:
            self.open_streams -= 1
            await playing.aclose()

    async def _play(self) -> AsyncGenerator[Delta]:
        while (delta := await self.deltas.get()) is not None:
            if isinstance(delta, Exception):
                raise delta
            yield delta


async def passes(count: int = 5) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop go round until something is true. The test's own time limit is the bound."""
    while not condition():
        await asyncio.sleep(0)


def scripted(*answers: Any, **options: Any) -> ScriptedModel:
    """A scripted model that answers "Fine." when its script is over."""
    return ScriptedModel(*answers, then="Fine.", **options)


class City(BaseModel):
    """A type to ask an answer of."""

    name: str
