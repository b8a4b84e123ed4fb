"""One undo: the compensations of completed calls, in reverse order, each at most once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from ...cancellation import BoundedShield, CancellationToken
from ...errors import Cancelled, UndoConflict
from ...messages import ToolCall
from ...receipt import Undone, UndoReceipt
from ..output import describe_error
from ..policy import FINAL_GRACE
from ..thread import ThreadCall
from .compensation import DEFAULT_UNDO_TIMEOUT
from .effect import Effect

_NOT_KNOWN: Final = "It was done in another process, and what undoes it is not known here."
_NOT_SAVED: Final = "The store did not answer, so it was not undone. It can be tried again."


class UndoPass:
    """One pass over some effects, the last one first. It stops when its token, or its task, is cancelled.

    A cancellation of the task does not leave `run()`; it sets `interrupted`, and the caller raises it again.
    """

    def __init__(
        self,
        effects: Iterable[Effect],
        token: CancellationToken,
        saved: Callable[[], Awaitable[None]] | None = None,
        save_timeout: float = 0.0,
    ) -> None:
        self._effects: Final = tuple(effects)[::-1]
        self._token: Final = token
        self._saved: Final = saved
        self._save_timeout: Final = save_timeout
        self._shield: Final = BoundedShield("undo")
        self._interrupted = False
        self._store_failed = False
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
                settled = effect.settled
                if settled is not None:
                    if effect.claim():
                        self._record(effect, receipt_of(effect.call, *settled))
                elif self._token.cancelled:
                    if not effect.claimed:  # it is not claimed: it can still be undone later
                        why = f"The undo was stopped ({self._why()})."
                        self._record(effect, receipt_of(effect.call, Undone.NOT_UNDONE, why))
                elif not effect.can_be_invoked:
                    if not effect.claimed:
                        self._record(effect, receipt_of(effect.call, Undone.NOT_UNDONE, _NOT_KNOWN))
                elif effect.claim():
                    if await self._claim_is_saved(effect):
                        self._record(effect, await self._undo(effect, stop_requested))
                    else:
                        effect.unclaim()
                        effect.log.changed(effect)  # a write that is late may not store the claim
                        self._record(effect, receipt_of(effect.call, Undone.NOT_UNDONE, _NOT_SAVED))
        finally:
            unregister()

    def _record(self, effect: Effect, receipt: UndoReceipt) -> None:
        self.receipts.append(receipt)
        if effect.claimed:
            effect.note_outcome(receipt)
            effect.log.changed(effect)
        effect.log.record(receipt)

    async def _claim_is_saved(self, effect: Effect) -> bool:
        """Save the claim, so that no other process undoes the same; whether that was possible."""
        if self._saved is None:
            return True
        if self._store_failed:
            return False
        effect.log.changed(effect)
        saving = asyncio.ensure_future(self._saved())
        await self._shield.wait((saving,), seconds=self._save_timeout)
        if not saving.done():
            saving.cancel()
        self._store_failed = not saving.done() or saving.cancelled() or saving.exception() is not None
        return not self._store_failed

    def _why(self) -> str:
        return str(self._token.cause)

    async def _undo(self, effect: Effect, stop_requested: asyncio.Future[None]) -> UndoReceipt:
        began = time.perf_counter()
        name = f"quiesce-undo-{effect.call.id}"
        is_async = effect.compensation is not None and effect.compensation.is_async
        thread = None if is_async else ThreadCall(effect.invoke, name, _ignore)
        task = asyncio.create_task(_attempt(effect, thread), name=name)
        compensation = effect.compensation
        timeout = DEFAULT_UNDO_TIMEOUT if compensation is None else compensation.timeout
        try:
            await asyncio.wait((task, stop_requested), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._interrupted = True
            self._token.cancel("The task that waited for the undo was cancelled", source="caller")
        if not task.done():
            task.cancel()
            await self._shield.wait((task,), seconds=FINAL_GRACE)
        outcome, detail = self._outcome(task, thread, timeout)
        return receipt_of(effect.call, outcome, detail, time.perf_counter() - began)

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


def receipt_of(call: ToolCall, outcome: Undone, detail: str = "", seconds: float | None = None) -> UndoReceipt:
    """The receipt of an undo."""
    return UndoReceipt(call.id, call.name, outcome, detail, seconds)
