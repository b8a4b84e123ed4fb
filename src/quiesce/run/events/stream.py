"""Streams of events: a run that stops when its reader leaves, and runs that a thread starts in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from ..._threads.background_loop import Request, portal
from ...cancellation.raised import ENDS_PROGRAM
from ...events import Event, RunEnded
from ...result import OutT
from ..handle import Run, state_of
from ..waiting import end_with_caller, end_with_thread, graver, outcome, raise_failure, wait_in_thread
from .answers import PartialOutputs, TextStream
from .fanout import Reader

_T = TypeVar("_T")

# Seconds to wait for the start of a run when its thread is interrupted meanwhile.
_STARTING: Final = 30.0
# After so many exceptions in a row, the thread no longer waits for the run, which stops by itself.
_ATTEMPTS: Final = 3


class EventStream(Generic[OutT]):
    """What `stream_async` returns: an async iterator over events, and the run behind it.

    The run starts with the first event that is asked for. Leaving the loop early, dropping the stream, or closing it
    is a stop (cause: `disconnect`); so is the cancellation of the task that reads (cause: `caller`), which goes on once
    the run is at rest. After the last event, a run that failed raises its error.

    A prompt that steered a run of another caller (`on_busy="steer"`) does not own that run: leaving the loop early does
    not stop it.
    """

    def __init__(self, start: Callable[[], tuple[Run[OutT], bool]]) -> None:
        self._start: Final = start
        self._reader: Reader | None = None
        self._run: Run[OutT] | None = None
        self._is_mine = False

    @property
    def run(self) -> Run[OutT]:
        """The run, which is started by the first read."""
        if self._run is None:
            self._run, self._is_mine = self._start()
            self._reader = self._run.events(history=self._is_mine)
        return self._run

    def __aiter__(self) -> Self:
        return self

    def text_stream(self) -> TextStream:
        """The text of the answers: `async for text in agent.stream_async(...).text_stream()`. Leaving it is a stop."""
        return TextStream(state_of(self.run), self)

    def partial_output(self) -> PartialOutputs[OutT]:
        """The structured output while it is written, see `Run.partial_output`. Leaving it is a stop."""
        return PartialOutputs(state_of(self.run), self)

    async def __anext__(self) -> Event:
        run = self._run or self.run
        reader = self._reader
        assert reader is not None
        try:
            for event in reader.ready:  # in the middle of an answer, most often
                return event
            return await reader.__anext__()
        except StopAsyncIteration:
            raise_failure(await outcome(state_of(run)))
            raise
        except asyncio.CancelledError:
            if not self._is_mine:
                raise
            run.cancel("The task that read the events was cancelled", source="caller")
            await end_with_caller(state_of(run))
            raise
        except ENDS_PROGRAM as error:
            if self._is_mine:
                state_of(run).stop_because(error)
            raise

    async def aclose(self) -> None:
        """Stop the run, unless it has ended, and wait until it is at rest."""
        run = self._run
        if self._reader is not None and not self._is_mine:
            self._reader.close()
        elif run is not None and not run.done:
            run.cancel("The reader left", source="disconnect")
            await run.stopped()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        run = self._run
        if run is not None and self._is_mine and not run.done:
            run.cancel("The reader left", source="disconnect")


class Background:
    """A run that a thread starts in the background, and that stops when an exception is raised in that thread.

    A signal handler may raise the exception between any two instructions. So the handle is not only returned, but also
    kept in the request, where both threads find it.
    """

    def __init__(self, start: Callable[[], tuple[Run, bool]]) -> None:
        self._request: Final = Request(start)

    def run(self) -> tuple[Run, bool]:
        """Start the run. Returns it, and whether it is the caller's. Raises what starting it raises."""
        portal().post(self._request)
        return self._request.outcome.result()

    def end_with(self, error: BaseException) -> BaseException:
        """After an exception in this thread: withdraw the request, or stop the run. Returns the exception to raise."""
        for _ in range(_ATTEMPTS):
            try:
                return self._end_with(error)
            except BaseException as further:  # another one, while the first is handled
                error = graver(error, further)
        return error

    def _end_with(self, error: BaseException) -> BaseException:
        request = self._request
        if request.withdraw() or request.outcome.raised(error):
            return error
        try:
            run, is_mine = request.outcome.result(_STARTING)
        except BaseException as other:
            if not request.outcome.done() or request.outcome.raised(other):  # it could not be started
                return error
            run, is_mine = request.outcome.result()
        stops = is_mine or isinstance(error, KeyboardInterrupt)
        return end_with_thread(state_of(run), error) if stops and not run.done else error


def run_in_background(start: Callable[[], tuple[Run, bool]], use: Callable[[Run, bool], _T]) -> _T:
    """Start a run in the background, and call `use` in this thread with its handle and whether it is the caller's.

    An exception in this thread stops a run that is the caller's, and is raised once that is at rest.
    """
    background = Background(start)
    try:
        return use(*background.run())
    except BaseException as error:
        raise background.end_with(error)  # noqa: B904  # most often this one itself


def events_in_this_thread(start: Callable[[], tuple[Run, bool]]) -> Iterator[Event]:
    """What `stream` returns: the events, for a thread that blocks, with or without an event loop in it.

    An exception while it waits for an event, such as Ctrl-C, is a stop too.
    """
    events: SimpleQueue[Event] = SimpleQueue()
    leave: list[Callable[[], None]] = []

    def begin() -> tuple[Run, bool]:
        run, is_mine = start()
        leave.append(run.tap(events.put))
        last = state_of(run).events.last
        if last is not None:  # a prompt has steered a run of another loop, which may have ended before the tap
            events.put(last)
        return run, is_mine

    background = Background(begin)
    try:
        run, is_mine = background.run()
        try:
            while not isinstance(event := events.get(), RunEnded):
                yield event
            yield event
        except GeneratorExit:
            if is_mine:
                run.cancel("The reader left", source="disconnect")
                wait_in_thread(state_of(run))
            raise
        run.wait()
    except GeneratorExit:
        raise
    except BaseException as error:
        raise background.end_with(error)  # noqa: B904  # most often this one itself
    finally:
        for each in leave:
            each()
