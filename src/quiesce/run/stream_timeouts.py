"""Timeouts of one model call: for its first word, and for gaps in its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, Self

from msgspec import Struct

from .._threads.loop_callback import stopping
from .._threads.seconds import is_seconds
from ..errors import ConfigurationError, ModelTimeout

FIRST_TOKEN_TIMEOUT: Final = 600.0
STREAM_GAP_TIMEOUT: Final = 120.0
# How often a watch looks whether an answer has grown, within the time that a gap may take.
_LOOKS: Final = 8


class StreamTimeouts(Struct, frozen=True):
    """How long a model may take for its first word, and between two parts of its answer. None switches one off."""

    first_token: float | None = FIRST_TOKEN_TIMEOUT
    gap: float | None = STREAM_GAP_TIMEOUT


def checked_stream_timeout(name: str, seconds: object) -> float | None:
    """The seconds. Raises `ConfigurationError` unless they are a positive number, or None."""
    if seconds is None:
        return None
    if not is_seconds(seconds) or not seconds:
        raise ConfigurationError(
            f"{name}={seconds!r} makes no sense.", todo="Use seconds, more than 0, or None for no timeout."
        )
    return float(seconds)


def checked_timeouts(first_token: object, gap: object) -> StreamTimeouts:
    """Both, checked. Raises `ConfigurationError`."""
    return StreamTimeouts(
        checked_stream_timeout("first_token_timeout", first_token), checked_stream_timeout("stream_gap_timeout", gap)
    )


class WatchedAnswer(Protocol):
    """What a watch needs of the answer that is being streamed."""

    @property
    def has_content(self) -> bool:
        """Whether the model has said anything."""
        ...

    def extent(self) -> tuple[object, ...]:
        """How far the answer has come: another value whenever something has come."""
        ...


class StreamWatch:
    """Ends the reading of a stream that stalls: `async with` around it raises `ModelTimeout` then.

    A part of the answer costs nothing here: one timer looks now and then whether the answer has grown. A gap is
    therefore noticed up to an eighth of its time late.
    """

    __slots__ = (
        "_answer",
        "_began",
        "_expired",
        "_extent",
        "_grown_at",
        "_is_stopped",
        "_loop",
        "_scope",
        "_stop_because",
        "_timeouts",
        "_timer",
        "paused",
    )

    def __init__(
        self,
        timeouts: StreamTimeouts,
        answer: WatchedAnswer,
        is_stopped: Callable[[], bool],
        stop_because: Callable[[BaseException], None],
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._timeouts: Final = timeouts
        self._answer: Final = answer
        self._is_stopped: Final = is_stopped
        self._stop_because: Final = stop_because
        self._began: Final = self._loop.time()
        self._extent: tuple[object, ...] | None = None
        self._grown_at = self._began
        self._timer: asyncio.TimerHandle | None = None
        self._scope: asyncio.Timeout | None = None  # while the stream is read: it refers to the task
        self._expired = ""
        self.paused = False
        """Whether the stream is not read, because a reader of the run is slow."""

    async def __aenter__(self) -> Self:
        self._scope = scope = asyncio.timeout(None)
        await scope.__aenter__()
        first = self._timeouts.first_token
        self._arm(self._began, None if first is None else self._began + first)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop()
        scope, self._scope = self._scope, None
        assert scope is not None
        try:
            await scope.__aexit__(type(error) if error else None, error, error and error.__traceback__)
        except TimeoutError:
            raise ModelTimeout(self._expired) from None

    def stop(self) -> None:
        """Watch no longer: the answer is complete, or is not wanted any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now: float, deadline: float | None) -> None:
        """Look again at the deadline, or before that: a first word may come, or the answer may grow."""
        due = [] if deadline is None else [deadline]
        if self._timeouts.gap is not None:
            due.append(now + self._timeouts.gap / _LOOKS)
        if due:
            self._timer = self._loop.call_at(min(due), stopping(self._check, self._stop_because))

    @property
    def _deadline(self) -> float | None:
        if not self._answer.has_content:
            return None if self._timeouts.first_token is None else self._began + self._timeouts.first_token
        return None if self._timeouts.gap is None else self._grown_at + self._timeouts.gap

    def _check(self) -> None:
        self._timer = None
        if self._is_stopped():
            return
        now, extent = self._loop.time(), self._answer.extent()
        if extent != self._extent or self.paused:
            self._extent, self._grown_at = extent, now
        deadline = self._deadline
        if deadline is None or now < deadline:
            self._arm(now, deadline)
        elif self._answer.has_content:
            self._expire(f"The model's stream stalled: nothing came for {self._timeouts.gap:g} s.")
        else:
            self._expire(f"The model did not begin its answer within {self._timeouts.first_token:g} s.")

    def _expire(self, words: str) -> None:
        self._expired = words
        if self._scope is not None:
            self._scope.reschedule(self._loop.time())
