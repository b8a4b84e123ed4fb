"""A model whose answers are scripted: for tests, demos and everything that must be the same each time.

    ScriptedModel(
        [Say("Let me look. "), Call("search", {"query": "rain"}), Used(input=40, output=12)],
        "It will rain.",
    )

Each argument is one answer; a plain string is an answer with this text. An answer is a list of steps, streamed in
order. The steps follow the real protocol: a `Pause` is an await that a stop cuts, a torn call has no end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from .. import events
from ..errors import ConfigurationError, ScriptError
from ..usage.prices import Price
from .base import ModelRequest

# --- Steps ---------------------------------------------------------------------------------------------------------


class Say(Struct, frozen=True):
    """Stream text in pieces of `chunk` characters, with `pause` seconds before each."""

    text: str
    chunk: int = 8
    pause: float = 0.0


class Think(Struct, frozen=True):
    """Stream reasoning in pieces; the last one carries the signature."""

    text: str
    chunk: int = 8
    signature: str | None = None
    pause: float = 0.0


class Call(Struct, frozen=True):
    """Call a tool. `arguments` may be raw text, for arguments that are not JSON."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None
    chunk: int = 12
    pause: float = 0.0


class TornCall(Struct, frozen=True):
    """Begin a tool call that has no end."""

    name: str
    arguments: str = '{"x'
    id: str | None = None


class Interleave(Struct, frozen=True):
    """Stream several steps at once, a delta of each by turns."""

    steps: tuple[Say | Think | Call | TornCall, ...]


class Pause(Struct, frozen=True):
    """Send nothing for some seconds."""

    seconds: float


class Stall(Struct, frozen=True):
    """Send nothing more, and never end."""


class Fail(Struct, frozen=True):
    """Raise `error` at this point of the answer."""

    error: Exception


class Drop(Struct, frozen=True):
    """Close the connection at this point, before the end of the answer."""


class Used(Struct, frozen=True):
    """Report usage, cumulative. `final=False` is a report from the middle of an answer."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    final: bool = True


class Raw(Struct, frozen=True):
    """Yield exactly this, whatever it is."""

    delta: Any


class End(Struct, frozen=True):
    """End the answer with a reason. Without this, the reason follows from the answer."""

    reason: events.AnswerStop


Step: TypeAlias = Say | Think | Call | TornCall | Interleave | Pause | Stall | Fail | Drop | Used | Raw | End
Answer: TypeAlias = str | Exception | Step | Sequence[str | Exception | Step]

# --- The model -----------------------------------------------------------------------------------------------------


class ScriptedModel:
    """Streams its answers in order. After the last one it repeats `then`, or raises `ScriptError` when that is None.

    An answer is a text, an exception, a step such as `Call(...)`, or a list of them. Raises `ConfigurationError` for
    anything else. `requests` are the requests that it was sent; `open_streams` counts the answers that are being
    streamed.
    """

    def __init__(
        self,
        *answers: Answer,
        then: Answer | None = None,
        name: str = "scripted",
        price: Price | None = None,
        supports_prefill: bool = False,
    ) -> None:
        self.name: Final = name
        self.price: Final = price
        self.supports_prefill: Final = supports_prefill
        self.requests: Final[list[ModelRequest]] = []
        self.open_streams = 0
        self._waiting: Final[set[asyncio.Future[None]]] = set()
        for answer in answers if then is None else (*answers, then):
            _steps(answer)
        self._answers: Final = iter(answers)
        self._then: Final = then
        self._ids: Final = (f"call_{number}" for number in itertools.count(1))

    @property
    def cancels_at_once(self) -> bool:
        """Whether a cancelled stream ends without waiting for anything. Not known of a subclass that streams itself."""
        return type(self).stream is ScriptedModel.stream

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[events.Delta]]:
        """Stream the next answer."""
        self.requests.append(request)
        answer = next(self._answers, self._then)
        if answer is None:
            raise ScriptError(f"The script of {self.name!r} has no answer number {len(self.requests)}.")
        self.open_streams += 1
        deltas = self._stream_steps(_steps(answer), len(self.requests))
        try:
            yield deltas
        finally:
            self.open_streams -= 1
            await deltas.aclose()

    async def _stream_steps(self, steps: tuple[Step, ...], number: int) -> AsyncGenerator[events.Delta]:
        yield events.AnswerStart(f"{self.name}-{number}", self.name)
        reason: events.AnswerStop = "end_turn"
        for step in steps:
            match step:
                case Pause(seconds):
                    await self._wait(seconds)
                case Stall():
                    await self._wait(None)
                case Fail(error):
                    raise error
                case Drop():
                    return
                case End(why):
                    yield events.AnswerEnd(why)
                    return
                case Used():
                    yield events.UsageDelta(**{name: getattr(step, name) for name in step.__struct_fields__})
                case Raw(delta):
                    yield delta
                case _:
                    if isinstance(step, Call | Interleave):
                        reason = "tool_use"
                    for delta, pause in self._deltas(step):
                        if pause:
                            await self._wait(pause)
                        yield delta
        yield events.AnswerEnd(reason)

    async def _wait(self, seconds: float | None) -> None:
        """Wait so long, or until `break_streams`; None is for ever."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiting)
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
            if timer is not None:
                timer.cancel()

    def break_streams(self, error: Exception) -> None:
        """Raise an error in each stream that waits right now, as a connection that breaks does."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)

    def _deltas(self, step: Say | Think | Call | TornCall | Interleave) -> Iterator[tuple[events.Delta, float]]:
        match step:
            case Say(text, chunk, pause):
                for piece in _pieces(text, chunk):
                    yield events.TextDelta(piece), pause
            case Think(text, chunk, signature, pause):
                for piece in _pieces(text, chunk):
                    yield events.ReasoningDelta(piece), pause
                if signature is not None:
                    yield events.ReasoningDelta("", signature), 0.0
            case Call(name, arguments, given_id, chunk, pause):
                call_id = given_id or next(self._ids)
                written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                yield events.ToolCallStart(call_id, name), pause
                for piece in _pieces(written, chunk):
                    yield events.ToolCallArguments(call_id, piece), pause
                yield events.ToolCallEnd(call_id), 0.0
            case TornCall(name, arguments, given_id):
                call_id = given_id or next(self._ids)
                yield events.ToolCallStart(call_id, name), 0.0
                yield events.ToolCallArguments(call_id, arguments), 0.0
            case Interleave(steps):
                streams = [self._deltas(each) for each in steps]
                for together in itertools.zip_longest(*streams):
                    yield from (delta for delta in together if delta is not None)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _steps(answer: Answer) -> tuple[Step, ...]:
    steps = answer if isinstance(answer, list | tuple) else (answer,)
    return tuple(_step(each) for each in steps)


def _step(given: object) -> Step:
    if isinstance(given, str):
        return Say(given)
    if isinstance(given, Exception):
        return Fail(given)
    if not isinstance(given, Step):
        raise ConfigurationError(
            f"A {type(given).__name__} is no step of an answer.", todo="Use a text, Say(...), Call(...) and the like."
        )
    return given


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]
