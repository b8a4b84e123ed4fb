"""The events of a run that lives as long as somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from ..._background_loop import portal
from ...events import Event, RunEnded
from ..handle import Run
from .fanout import Reader


class EventStream:
    """What `stream_async` returns: an async iterator over events, and the run behind it.

    The run starts with the first event that is asked for. Leaving the loop early, dropping the stream, or closing it
    is a stop (cause: `disconnect`); so is the cancellation of the task that reads (cause: `task`), which goes on once
    the run is at rest. After the last event, a run that failed raises its error.

    A prompt that was said in a run which somebody else had started (`on_busy="steer"`) does not own that run: whoever
    leaves its events leaves it running.
    """

    def __init__(self, start: Callable[[], tuple[Run, bool]]) -> None:
        self._start: Final = start
        self._reader: Reader | None = None
        self._run: Run | None = None
        self._is_mine = False

    @property
    def run(self) -> Run:
        """The run, started now if nobody has read yet."""
        if self._run is None:
            self._run, self._is_mine = self._start()
            self._reader = self._run.events()
        return self._run

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        run = self.run
        assert self._reader is not None
        try:
            return await self._reader.__anext__()
        except StopAsyncIteration:
            await run.result()  # raises the failure of a run that failed
            raise
        except asyncio.CancelledError:
            if not self._is_mine:
                raise
            run.cancel("The task that read the events was cancelled", source="task")
            await run.end_with_caller()
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


def events_in_this_thread(start: Callable[[], tuple[Run, bool]]) -> Iterator[Event]:
    """What `stream` returns: the same for a thread that waits, with or without an event loop in it.

    Ctrl-C while an event is waited for is a stop too (cause: `signal`).
    """
    events: SimpleQueue[Event] = SimpleQueue()

    def begin() -> tuple[Run, bool, Callable[[], None]]:
        run, is_mine = start()
        return run, is_mine, run.tap(events.put)

    run, is_mine, leave = portal().call(begin, if_interrupted=lambda begun: interrupt(begun[0]))
    try:
        event = events.get()
        while not isinstance(event, RunEnded):
            yield event
            event = events.get()
        yield event
    except KeyboardInterrupt:
        interrupt(run)
        raise
    finally:
        if is_mine:
            run.cancel("The reader left", source="disconnect")
            run.wait_for_rest()
        else:
            leave()
    run.wait()


def interrupt(run: Run) -> None:
    """Ctrl-C was pressed in a thread that waits for the run."""
    run.cancel("Ctrl-C", source="signal")
