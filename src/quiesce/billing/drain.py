"""Background tasks that read the rest of a stream after a stop to learn the usage: limited, and ended with the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from .._threads.loop_end import watch_loop
from ..conversation.answer import newer
from ..events import AnswerEnd, Delta, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart, UsageDelta
from ..tools.closed_loop import close_coroutine
from ..usage.estimate.answer_count import Block, BlockKind
from ..usage.estimate.pieces import Pieces
from ..usage.estimate.received import ReceivedAnswer
from ..usage.stop_policy import RequestStopPolicy


class UnseenAnswer:
    """The part of an answer that came after the stop: its usage is kept and its text is counted, but not shown."""

    def __init__(self, report: UsageDelta | None, most_bytes: int) -> None:
        self._report = report
        self._most: Final = most_bytes
        self._blocks: Final[list[Block]] = []
        self._since: list[Block] = []
        self._size = 0
        self._reported = False
        self._ended = False
        self.complete = False
        self.began = False
        self.read_to_end = False
        """Whether the provider ended the stream, and not the hang-up."""

    async def read(self, first: Delta, deltas: AsyncIterator[Delta]) -> None:
        """Read on, from the delta that came after the stop, to the end or to the cap."""
        self.take(first)
        try:
            async for delta in deltas:
                self.take(delta)
                if self._size > self._most:
                    return
            self.read_to_end = True
        finally:  # a connection that breaks after the end of an answer has cost nothing
            self.complete = self._ended
            self.read_to_end = self.read_to_end or self._ended

    def take(self, delta: Delta) -> None:
        """Count a delta that came after the stop."""
        self.began = True
        match delta:
            case UsageDelta():
                self._report = delta if self._report is None else newer(self._report, delta)
                if delta.output is not None:
                    self._since = []
                    self._reported = True
            case TextDelta(text):
                self._add("text", text)
            case ReasoningDelta(text):
                self._add("reasoning", text)
            case ToolCallArguments(_, text):
                self._add("arguments", text)
            case ToolCallStart(_, name):
                self._blocks.append(Block("arguments", Pieces(), name))
                self._since.append(Block("arguments", Pieces(), name))
            case AnswerEnd():
                self._ended = True
            case _:
                pass

    def _add(self, kind: BlockKind, text: str) -> None:
        self._size += len(text)
        for blocks in (self._blocks, self._since):
            if not blocks or blocks[-1].kind != kind:
                blocks.append(Block(kind, Pieces()))
            blocks[-1].parts.append(text)

    def received(self, before: ReceivedAnswer) -> ReceivedAnswer:
        """The whole answer: the part received before the stop, and this one."""
        since = tuple(self._since)
        if not self._reported:
            since = None if before.since is None else _join(before.since, since)
        return ReceivedAnswer(
            report=self._report,
            blocks=_join(before.blocks, tuple(self._blocks)),
            since=since,
            counter=before.counter,
            complete=before.complete or self.complete,
            bill_goes_on=before.bill_goes_on,
            in_flight=before.in_flight,
        )


def _join(before: tuple[Block, ...], after: tuple[Block, ...]) -> tuple[Block, ...]:
    """Blocks one after the other; one that goes on after the stop stays one."""
    if not before or not after or before[-1].kind != after[0].kind or after[0].name:
        return (*before, *after)
    last, first = before[-1], after[0]
    return (*before[:-1], Block(last.kind, Pieces((*last.parts, *first.parts)), last.name, last.context), *after[1:])


def is_over(task: asyncio.Task[Any]) -> bool:
    """Whether a task has ended, or its loop was closed around it."""
    return task.done() or task.get_loop().is_closed()


def when_over(task: asyncio.Task[Any], call: Callable[[], None], on_fork: Callable[[], None]) -> None:
    """Call this once the task has ended, or its loop is closed around it. In that loop's thread.

    In a child process that is forked, where the task is the parent's, `on_fork` is called.
    """
    leave = watch_loop(task.get_loop(), on_close=call, on_fork=on_fork)

    def on_end(_: object) -> None:
        leave()
        call()

    task.add_done_callback(on_end)


class DrainPool:
    """The background tasks of one agent that learn usage. Each ends by itself, at its limit, or with its loop."""

    def __init__(self) -> None:
        self._active: Final[set[asyncio.Task[Any]]] = set()

    def has_room(self, policy: RequestStopPolicy) -> bool:
        """Whether the policy allows one more task."""
        return len(self._active) < policy.at_once

    def follow(self, task: asyncio.Task[Any], policy: RequestStopPolicy) -> None:
        """Let a task go on, for as long as the policy allows."""
        self._active.add(task)
        timer = asyncio.get_running_loop().call_later(policy.seconds, task.cancel)

        def on_end() -> None:
            self._active.discard(task)
            timer.cancel()
            if not task.done():
                close_coroutine(task)
            elif not task.cancelled():
                task.exception()  # the run has ended: an error changes nothing but the figures

        when_over(task, on_end, lambda: self._active.discard(task))

    def cut(self) -> None:
        """Cut everything that is followed in this loop. Its figures stay estimates."""
        loop = asyncio.get_running_loop()
        for task in tuple(self._active):
            if task.get_loop() is loop:
                task.cancel()
            else:
                task.get_loop().call_soon_threadsafe(task.cancel)

    def __len__(self) -> int:
        return len(self._active)
