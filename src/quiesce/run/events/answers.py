"""A run's answer while it is written: its text, and its structured output as far as it has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Generic, Self, TypeVar

from ...errors import ConfigurationError
from ...events import Event, ModelCallStarted, TextDelta
from ..output import OutputMismatch
from ..state import RunState
from ..waiting import outcome, raise_failure

_T = TypeVar("_T")
_SHARE: Final = 100


class TextStream:
    """An async iterator over the text of a run's answers, piece by piece. It ends with the run, or raises its error.

    Whether leaving it stops the run depends on the events that it reads: those of a `Run` do not, those of an
    `EventStream` do.
    """

    def __init__(self, state: RunState, events: AsyncIterator[Event]) -> None:
        self._state: Final = state
        self._events: Final = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        async for event in self._events:
            if isinstance(event, TextDelta) and event.text:
                return event.text
        raise_failure(await outcome(self._state))
        raise StopAsyncIteration


class PartialOutputs(Generic[_T]):
    """An async iterator over the structured output of a run, as far as it was written; the last one is the output.

    Each is different from the one before. It ends with the run, or raises its error. A run that was stopped ends it
    with what there was. The text is parsed again when it has grown by a hundredth, so that a long output costs no more
    for each character than a short one. Raises `ConfigurationError` for a run without an `output_type`.
    """

    def __init__(self, state: RunState, events: AsyncIterator[Event]) -> None:
        if state.config.output is None:
            raise ConfigurationError(
                "partial_output() needs a run with an output_type.", todo="Give one, or use text_stream()."
            )
        self._state: Final = state
        self._events: Final = events
        self._pieces: list[str] = []
        self._length = 0
        self._parsed_length = 0
        self._last: tuple[Any, ...] = ()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        async for event in self._events:
            if isinstance(event, ModelCallStarted):
                self._pieces, self._length, self._parsed_length = [], 0, 0
            elif isinstance(event, TextDelta):
                self._pieces.append(event.text)
                self._length += len(event.text)
                if (self._length - self._parsed_length) * _SHARE >= self._length and self._has_more():
                    return self._last[0]
        result = await outcome(self._state)
        if not result.parsed and self._parsed_length < self._length and self._has_more():
            return self._last[0]
        raise_failure(result)
        if self._ended or not result.parsed or result.parsed == self._last:
            raise StopAsyncIteration
        self._ended = True
        return result.parsed[0]

    def _has_more(self) -> bool:
        """Whether the text shows something else than before, which is then the last."""
        self._parsed_length = self._length
        found = self._parsed()
        if not found or found == self._last:
            return False
        self._last = found
        return True

    def _parsed(self) -> tuple[Any, ...]:
        """The output as far as the text shows it; empty when nothing can."""
        output = self._state.config.output
        if output is None:  # another agent continues, which has no output type
            return ()
        try:
            return (output.parse_partial("".join(self._pieces)),)
        except OutputMismatch:
            return ()
