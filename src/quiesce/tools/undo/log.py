"""Undo of a run: the compensations of its completed calls, in reverse order, each at most once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ...cancellation import BoundedShield, CancellationToken
from ...errors import Cancelled, UndoConflict
from ...messages import ToolCall
from ...receipt import Undone, UndoReceipt
from ..output import describe_error
from ..policy import FINAL_GRACE
from ..thread import ThreadCall
from .compensation import Compensation


class Effect:
    """The effect of a completed call. It can be undone at most once."""

    def __init__(
        self, call: ToolCall, compensation: Compensation, arguments: dict[str, Any], value: Any, log: UndoLog
    ) -> None:
        self.call: Final = call
        self.log: Final = log
        self.compensation: Final = compensation
        self._arguments: Final = arguments
        self._value: Final = value
        self._claims: dict[str, object] = {}

    def copied_to(self, log: UndoLog) -> Effect:
        """The same effect in the log of a run that resumes its turn. Only one of the two can be claimed."""
        copy = Effect(self.call, self.compensation, self._arguments, self._value, log)
        copy._claims = self._claims
        return copy

    def claim(self) -> bool:
        """Claim the undo of this effect. Atomic: of several claims, from any threads, exactly one returns True."""
        mine = object()
        return self._claims.setdefault("claim", mine) is mine

    @property
    def claimed(self) -> bool:
        """Whether the undo of this effect was claimed."""
        return bool(self._claims)

    def invoke(self) -> Any:
        """Call the compensation."""
        return self.compensation.function(**self.compensation.bind(self._arguments, self._value))


class UndoPass:
    """One pass over some effects, the last one first. It stops when its token, or its task, is cancelled.

    A cancellation of the task does not leave `run()`; it sets `interrupted`, and the caller raises it again.
    """

    def __init__(self, effects: Iterable[Effect], token: CancellationToken) -> None:
        self._effects: Final = tuple(effects)[::-1]
        self._token: Final = token
        self._shield: Final = BoundedShield("undo")
        self._interrupted = False
        self.receipts: Final[list[UndoReceipt]] = []

    @property
    def interrupted(self) -> bool:
        """Whether the task that ran this was cancelled."""
        return self._interrupted or self._shield.interrupted

    async def run(self) -> None:
        """Undo the effects one by one. The receipt of each is recorded as soon as it is known."""
        stop_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unregister = self._token.on_cancel(partial(_resolve_soon, asyncio.get_running_loop(), stop_requested))
        try:
            for effect in self._effects:
                if self._token.cancelled:
                    if not effect.claimed:  # it is not claimed: it can still be undone later
                        why = f"The undo was stopped ({self._why()})."
                        self._record(effect, _receipt(effect.call, Undone.NOT_UNDONE, why))
                elif effect.claim():
                    self._record(effect, await self._undo(effect, stop_requested))
        finally:
            unregister()

    def _record(self, effect: Effect, receipt: UndoReceipt) -> None:
        self.receipts.append(receipt)
        effect.log.record(receipt)

    def _why(self) -> str:
        return str(self._token.cause)

    async def _undo(self, effect: Effect, stop_requested: asyncio.Future[None]) -> UndoReceipt:
        began = time.perf_counter()
        name = f"quiesce-undo-{effect.call.id}"
        thread = None if effect.compensation.is_async else ThreadCall(effect.invoke, name, _ignore)
        task = asyncio.create_task(_attempt(effect, thread), name=name)
        timeout = effect.compensation.timeout
        try:
            await asyncio.wait((task, stop_requested), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._interrupted = True
            self._token.cancel("The task that waited for the undo was cancelled", source="caller")
        if not task.done():
            task.cancel()
            await self._shield.wait((task,), seconds=FINAL_GRACE)
        outcome, detail = self._outcome(task, thread, timeout)
        return _receipt(effect.call, outcome, detail, time.perf_counter() - began)

    def _outcome(
        self, task: asyncio.Task[BaseException | None], thread: ThreadCall | None, timeout: float
    ) -> tuple[Undone, str]:
        """The outcome of a compensation, as far as it is known, and a sentence about it."""
        stopped = self._token.cancelled
        why = f"It was stopped ({self._why()})" if stopped else f"It did not end within {timeout:g} s"
        thread_outcome = None if thread is None else thread.outcome
        if task.done() and not task.cancelled():
            error = task.result()
        elif thread_outcome is not None and not inspect.isawaitable(thread_outcome.value):
            error = thread_outcome.error  # it ended in the same instant, before the task was notified
        elif task.done() and (thread is None or thread_outcome is not None):
            return Undone.UNKNOWN, f"{why}: it may be undone in part."
        else:
            return Undone.UNKNOWN, f"{why} and may still be running."
        if error is None:
            return Undone.UNDONE, ""
        if isinstance(error, Cancelled) and stopped:
            return Undone.UNKNOWN, f"{why}: it may be undone in part."
        return Undone.FAILED, str(error) if isinstance(error, UndoConflict) else describe_error(error)


async def _attempt(effect: Effect, thread: ThreadCall | None) -> BaseException | None:
    """Call a compensation and wait for it. Returns what it raised; a cancellation of this task is raised."""
    try:
        outcome = effect.invoke() if thread is None else await thread.wait()
        if inspect.isawaitable(outcome):  # a plain function, such as a lambda, may return an awaitable
            await outcome
    except GeneratorExit:  # the loop was closed around it
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return error
    except BaseException as error:  # a SystemExit is the failure of this undo, not the program's end
        return error
    return None


def _resolve_soon(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], _: object) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):  # the loop has closed, and with it the waiting task
        loop.call_soon_threadsafe(resolve)


def _ignore(_: object) -> None:
    """An abandoned compensation in a thread has ended. Its receipt says `unknown` already."""


class UndoLog:
    """The effects of a run and of its child runs, in the order in which they happened.

    `receipts` has the outcome of each undo so far, from whichever run of the tree it was requested. Appending is safe
    from any thread, because an abandoned call may end in a thread of its own.
    """

    def __init__(self, parent: UndoLog | None = None) -> None:
        self._parent: Final = parent
        self._effects: Final[list[Effect]] = []
        self._turn_began = 0
        self._not_undoable: Final[dict[int, tuple[ToolCall, UndoLog, str]]] = {}
        self.receipts: Final[list[UndoReceipt]] = []

    def add(self, effect: Effect) -> None:
        """Add the effect of a completed call."""
        for log in self._with_ancestors():
            log._effects.append(effect)
        self._remove_not_undoable(effect.call)

    def add_cut(self, call: ToolCall) -> None:
        """Add a call that was cut: its effect is not known, so it cannot be undone."""
        self._add_not_undoable(call, "It was cut while it was running: what it did is not known.")

    def _add_not_undoable(self, call: ToolCall, why: str) -> None:
        for log in self._with_ancestors():
            log._not_undoable[id(call)] = (call, self, why)

    def begin_turn(self) -> None:
        """Begin a new turn: later effects belong to it."""
        self._turn_began = len(self._effects)

    @property
    def turn_effects(self) -> tuple[Effect, ...]:
        """The effects of this turn."""
        return tuple(self._effects[self._turn_began :])

    def resume_turn(self, calls: Iterable[ToolCall], effects: Iterable[Effect]) -> None:
        """Resume a turn of an earlier run: `calls` have completed there, `effects` are those known here."""
        for effect in effects:
            self.add(effect.copied_to(self))
        for call in calls:
            if not any(effect.call == call for log in self._with_ancestors() for effect in log._effects):
                self._add_not_undoable(call, "It was done in another process, which alone could undo it.")

    def record(self, receipt: UndoReceipt) -> None:
        """Record the outcome of an undo, in the logs of the parent runs too."""
        for log in self._with_ancestors():
            log.receipts.append(receipt)

    def _remove_not_undoable(self, call: ToolCall) -> None:
        for log in self._with_ancestors():
            log._not_undoable.pop(id(call), None)

    def _with_ancestors(self) -> Iterator[UndoLog]:
        log: UndoLog | None = self
        while log is not None:
            yield log
            log = log._parent

    @property
    def remaining(self) -> tuple[Effect, ...]:
        """The effects whose undo was not claimed."""
        return tuple(effect for effect in self._effects if not effect.claimed)

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """Undo the remaining effects, the last one first. Returns a receipt for each.

        A cancellation of `token` or of the waiting task stops it; the latter is raised when nothing runs any more.
        """
        receipts, interrupted = await self._undo((token or CancellationToken()).child())
        if interrupted:
            raise asyncio.CancelledError
        return receipts

    async def run(self, token: CancellationToken) -> bool:
        """Undo the remaining effects. Returns whether the task was cancelled meanwhile; the caller raises that."""
        _, interrupted = await self._undo(token)
        return interrupted

    async def _undo(self, token: CancellationToken) -> tuple[tuple[UndoReceipt, ...], bool]:
        not_undoable = self._report_not_undoable()
        undoing = UndoPass(self.remaining, token)
        await undoing.run()
        return (*not_undoable, *undoing.receipts), undoing.interrupted

    def _report_not_undoable(self) -> list[UndoReceipt]:
        """Record a receipt for each call that cannot be undone, once."""
        receipts: list[UndoReceipt] = []
        while self._not_undoable:
            _, (call, log, why) = self._not_undoable.popitem()
            log._remove_not_undoable(call)
            receipts.append(_receipt(call, Undone.NOT_UNDONE, why))
            log.record(receipts[-1])
        return receipts


def _receipt(call: ToolCall, outcome: Undone, detail: str = "", seconds: float | None = None) -> UndoReceipt:
    return UndoReceipt(call.id, call.name, outcome, detail, seconds)
