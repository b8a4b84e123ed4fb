"""Taking back what a run did: the compensations of its completed calls, in reverse order, each at most once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ...cancellation import BoundedShield, CancellationToken
from ...errors import Cancelled
from ...messages import ToolCall
from ...receipt import Undone, UndoReceipt
from ..output import describe
from ..policy import LAST_BREATH
from ..thread import ThreadCall
from .compensation import Compensation


class Effect:
    """Something that a completed call did and that can be undone, at most once."""

    def __init__(
        self, call: ToolCall, compensation: Compensation, arguments: dict[str, Any], value: Any, log: UndoLog
    ) -> None:
        self.call: Final = call
        self.log: Final = log
        self.compensation: Final = compensation
        self._arguments: Final = arguments
        self._value: Final = value
        self._claims: dict[str, object] = {}

    def carried_to(self, log: UndoLog) -> Effect:
        """The same effect, for a run that goes on with the turn in which it was done. Only one of the two is undone."""
        twin = Effect(self.call, self.compensation, self._arguments, self._value, log)
        twin._claims = self._claims
        return twin

    def claim(self) -> bool:
        """Take the one right to undo this. One atomic step, so that of two who ask at once only one gets it."""
        mine = object()
        return self._claims.setdefault("claim", mine) is mine

    @property
    def claimed(self) -> bool:
        """Whether somebody has taken the right to undo this."""
        return bool(self._claims)

    def invoke(self) -> Any:
        """Call the compensation."""
        return self.compensation.function(**self.compensation.bind(self._arguments, self._value))


class Undoing:
    """One pass over some effects, last one first. It stops, and says how far it came, when its token is cancelled.

    So does an outside cancellation, which the pass takes and remembers in `interrupted`: whoever runs it passes it on.
    """

    def __init__(self, effects: Iterable[Effect], token: CancellationToken) -> None:
        self._effects: Final = tuple(effects)[::-1]
        self._token: Final = token
        self._shield: Final = BoundedShield("undo")
        self._interrupted = False
        self.receipts: Final[list[UndoReceipt]] = []

    @property
    def interrupted(self) -> bool:
        """Whether somebody cancelled the task that ran this."""
        return self._interrupted or self._shield.interrupted

    async def run(self) -> None:
        """Undo them one by one, and tell what became of each the moment that it is known."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        forget = self._token.on_cancel(partial(_resolve_soon, asyncio.get_running_loop(), asked))
        try:
            for effect in self._effects:
                if self._token.cancelled:
                    if not effect.claimed:  # nobody has touched it: it can still be undone later
                        why = f"The undo was stopped ({self._why()})."
                        self._tell(effect, _receipt(effect.call, Undone.NOT_UNDONE, why))
                elif effect.claim():
                    self._tell(effect, await self._undo(effect, asked))
        finally:
            forget()

    def _tell(self, effect: Effect, receipt: UndoReceipt) -> None:
        self.receipts.append(receipt)
        effect.log.tell(receipt)

    def _why(self) -> str:
        return str(self._token.cause)

    async def _undo(self, effect: Effect, asked: asyncio.Future[None]) -> UndoReceipt:
        began = time.perf_counter()
        name = f"quiesce-undo-{effect.call.id}"
        thread = None if effect.compensation.is_async else ThreadCall(effect.invoke, name, _ignore)
        task = asyncio.create_task(_attempt(effect, thread), name=name)
        timeout = effect.compensation.timeout
        try:
            await asyncio.wait((task, asked), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._interrupted = True
            self._token.cancel("The task that waited for the undo was cancelled", source="caller")
        if not task.done():
            task.cancel()
            await self._shield.wait((task,), seconds=LAST_BREATH)
        outcome, detail = self._judge(task, thread, timeout)
        return _receipt(effect.call, outcome, detail, time.perf_counter() - began)

    def _judge(
        self, task: asyncio.Task[BaseException | None], thread: ThreadCall | None, timeout: float
    ) -> tuple[Undone, str]:
        """What is known of a compensation: never more than is true."""
        stopped = self._token.cancelled
        why = f"It was stopped ({self._why()})" if stopped else f"It did not end within {timeout:g} s"
        ended_in_thread = None if thread is None else thread.outcome
        if task.done() and not task.cancelled():
            error = task.result()
        elif ended_in_thread is not None and not inspect.isawaitable(ended_in_thread.value):
            error = ended_in_thread.error  # it ended in the same instant, and nobody was told
        elif task.done() and (thread is None or ended_in_thread is not None):
            return Undone.UNKNOWN, f"{why}: it may be undone in part."
        else:
            return Undone.UNKNOWN, f"{why} and may still be running."
        if error is None:
            return Undone.UNDONE, ""
        if isinstance(error, Cancelled) and stopped:
            return Undone.UNKNOWN, f"{why}: it may be undone in part."
        return Undone.FAILED, describe(error)


async def _attempt(effect: Effect, thread: ThreadCall | None) -> BaseException | None:
    """Call a compensation and wait for it; returns what it raised. Only a cancellation from here is passed on."""
    try:
        outcome = effect.invoke() if thread is None else await thread.wait()
        if inspect.isawaitable(outcome):  # a plain function may give back what is to be awaited, as a lambda does
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

    with suppress(RuntimeError):  # the loop has closed, and with it the one who waited
        loop.call_soon_threadsafe(resolve)


def _ignore(_: object) -> None:
    """A compensation in a thread that was given up has ended. The receipt said that this was not known."""


class UndoLog:
    """What a run, and the runs below it, did that can be undone, in the order in which it was done.

    `receipts` says what became of each undo so far, whichever run of the tree was asked for it. Appending is safe from
    any thread, because a call that was left behind may end in a thread of its own.
    """

    def __init__(self, above: UndoLog | None = None) -> None:
        self._above: Final = above
        self._effects: Final[list[Effect]] = []
        self._turn_began = 0
        self._hopeless: Final[dict[int, tuple[ToolCall, UndoLog, str]]] = {}
        self.receipts: Final[list[UndoReceipt]] = []

    def add(self, effect: Effect) -> None:
        """A call has completed."""
        for log in self._lineage():
            log._effects.append(effect)
        self._forget_hopeless(effect.call)

    def note_cut(self, call: ToolCall) -> None:
        """A call that could have been undone did not complete: what it did is not known, so there is no undoing it."""
        self._note_hopeless(call, "It was cut while it was running: what it did is not known.")

    def _note_hopeless(self, call: ToolCall, why: str) -> None:
        for log in self._lineage():
            log._hopeless[id(call)] = (call, self, why)

    def begin_turn(self) -> None:
        """What is done from now on belongs to another turn."""
        self._turn_began = len(self._effects)

    @property
    def of_turn(self) -> tuple[Effect, ...]:
        """What was done in this turn."""
        return tuple(self._effects[self._turn_began :])

    def carry_on(self, calls: Iterable[ToolCall], effects: Iterable[Effect]) -> None:
        """Go on with a turn of an earlier run, which completed these calls; these are the effects that it left here."""
        for effect in effects:
            self.add(effect.carried_to(self))
        for call in calls:
            if not any(effect.call == call for log in self._lineage() for effect in log._effects):
                self._note_hopeless(call, "It was done in another process, which alone could undo it.")

    def tell(self, receipt: UndoReceipt) -> None:
        """Something that this run did was undone, or was not: say so, to the runs above too."""
        for log in self._lineage():
            log.receipts.append(receipt)

    def _forget_hopeless(self, call: ToolCall) -> None:
        for log in self._lineage():
            log._hopeless.pop(id(call), None)

    def _lineage(self) -> Iterator[UndoLog]:
        log: UndoLog | None = self
        while log is not None:
            yield log
            log = log._above

    @property
    def open(self) -> tuple[Effect, ...]:
        """What nobody has begun to undo."""
        return tuple(effect for effect in self._effects if not effect.claimed)

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """Undo what is open, last one first; returns what became of each. A second call finds only what is left.

        Stopped by its token, or by the cancellation of the task that waits, which is raised when all is at rest.
        """
        receipts, interrupted = await self._undo((token or CancellationToken()).child())
        if interrupted:
            raise asyncio.CancelledError
        return receipts

    async def run(self, token: CancellationToken) -> bool:
        """Undo what is open. Returns whether somebody cancelled the task meanwhile, for the caller to pass on."""
        _, interrupted = await self._undo(token)
        return interrupted

    async def _undo(self, token: CancellationToken) -> tuple[tuple[UndoReceipt, ...], bool]:
        hopeless = self._tell_hopeless()
        undoing = Undoing(self.open, token)
        await undoing.run()
        return (*hopeless, *undoing.receipts), undoing.interrupted

    def _tell_hopeless(self) -> list[UndoReceipt]:
        """Say of the calls that cannot be undone that they are not, once."""
        told: list[UndoReceipt] = []
        while self._hopeless:
            _, (call, log, why) = self._hopeless.popitem()
            log._forget_hopeless(call)
            told.append(_receipt(call, Undone.NOT_UNDONE, why))
            log.tell(told[-1])
        return told


def _receipt(call: ToolCall, outcome: Undone, detail: str = "", seconds: float | None = None) -> UndoReceipt:
    return UndoReceipt(call.id, call.name, outcome, detail, seconds)
