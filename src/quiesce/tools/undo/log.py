"""The undo log: the effects of a run, of its child runs, and of its task, in the order in which they happened."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...cancellation import CancellationToken
from ...messages import ToolCall
from ...receipt import UndoReceipt
from .effect import Effect, StoredEffect, cut_effect
from .undo_pass import UndoPass

if TYPE_CHECKING:
    from ..tool import Tool

_ELSEWHERE: Final = "It was done in another process, and what undoes it is not known here."
_CUT: Final = "It was cut while it was running: what it did is not known."
_CRASHED: Final = "The process ended while it was running: what it did is not known."


class UndoLog:
    """The effects of a run and of its child runs; the log of a task has those of all its runs.

    `receipts` has the outcome of each undo so far, from whichever run of the task it was requested. Appending is safe
    from any thread, because an abandoned call may end in a thread of its own.
    """

    __slots__ = ("__weakref__", "_effects", "_numbers", "_parent", "on_change", "receipts", "task_id")

    def __init__(self, parent: UndoLog | None = None, *, task_id: str = "") -> None:
        self._parent = parent
        self.task_id: Final = task_id
        self._effects: list[Effect] = []
        self._numbers = itertools.count()
        self.receipts: Final[list[UndoReceipt]] = []
        self.on_change: Callable[[int, StoredEffect | None], None] | None = None
        """Called with the number of an effect, and with the effect, when it is new or changes: to be saved.

        None when another effect, under another number, has taken its place.
        """

    # --- Adding -------------------------------------------------------------------------------------------------

    def join(self, task: UndoLog) -> None:
        """From now on the effects are those of a task, too."""
        self._parent = task
        for effect in self._effects:
            effect.number = next(task._numbers)
            task._effects.append(effect)
            task.changed(effect)

    @property
    def root(self) -> UndoLog:
        """The log of the whole task."""
        log = self
        while log._parent is not None:
            log = log._parent
        return log

    def add(self, effect: Effect) -> None:
        """Add the effect of a call. It replaces that of the same call, which had been cut and has completed since."""
        root = self.root
        known = next((each for each in root._effects if each.key == effect.key), None)
        effect.number = next(root._numbers)
        for log in self._with_ancestors():
            if known is not None:
                log._effects.remove(known)
            log._effects.append(effect)
        if known is not None and root.on_change is not None:
            root.on_change(known.number, None)
        self.changed(effect)

    def changed(self, effect: Effect) -> None:
        """Let an effect be saved that is new or has changed."""
        root = self.root
        if root.on_change is not None:
            root.on_change(effect.number, effect.stored)

    def add_cut(self, run_id: str, agent: str, calls: Iterable[ToolCall], why: str = _CUT) -> None:
        """Add calls whose effects are not known, so that they cannot be undone. Known effects stay as they are."""
        known: set[tuple[str, str]] | None = None
        for call in calls:
            known = {effect.key for effect in self.root._effects} if known is None else known
            if (run_id, call.id) not in known:
                self.add(cut_effect(self, run_id, agent, call, why))

    def add_crashed(self, run_id: str, calls: Iterable[ToolCall]) -> None:
        """Add calls that were running when their process ended."""
        self.add_cut(run_id, "", calls, _CRASHED)

    def resume_turn(self, run_id: str, agent: str, calls: Iterable[ToolCall]) -> None:
        """Resume a turn of an earlier run, where `calls` have completed."""
        known = {effect.call.id for log in self._with_ancestors() for effect in log._effects}
        self.add_cut(run_id, agent, (call for call in calls if call.id not in known), _ELSEWHERE)

    def restore(self, stored: Mapping[int, StoredEffect], find_tool: Callable[[str, str], Tool | None]) -> None:
        """Take over what is stored of the task: effects of earlier processes, and what others have undone since.

        The stored effects keep their numbers. An effect that only this process knows gets a number after them.
        """
        known = {effect.key: effect for effect in self._effects}
        restored: list[Effect] = []
        for number, each in sorted(stored.items()):
            effect = known.pop((each.run_id, each.call.id), None) or Effect(self, each, None, None)
            if effect.stored is each or (each.claimed and not effect.claimed):
                effect.update(each)
                effect.restore(find_tool)
                if each.receipt is not None:
                    self.receipts.append(each.receipt)
            effect.number = number
            restored.append(effect)
        self._numbers = itertools.count(max(stored, default=-1) + 1)
        for effect in known.values():
            effect.number = next(self._numbers)
        self._effects = [*restored, *known.values()]

    def save_after(self, number: int) -> None:
        """Let the effects be saved whose number is greater: the store does not know them."""
        for effect in self._effects:
            if effect.number > number:
                self.changed(effect)

    def record(self, receipt: UndoReceipt) -> None:
        """Record the outcome of an undo, in the logs of the parent runs too."""
        for log in self._with_ancestors():
            log.receipts.append(receipt)

    def _with_ancestors(self) -> Iterator[UndoLog]:
        log: UndoLog | None = self
        while log is not None:
            yield log
            log = log._parent

    # --- Undoing ------------------------------------------------------------------------------------------------

    @property
    def remaining(self) -> tuple[Effect, ...]:
        """The effects that can be undone: their undo was not claimed."""
        return tuple(effect for effect in self._effects if not effect.claimed and effect.settled is None)

    async def undo(
        self, token: CancellationToken, saved: Callable[[], Awaitable[None]] | None = None, *, save_timeout: float = 0.0
    ) -> tuple[tuple[UndoReceipt, ...], bool]:
        """Undo the remaining effects, the last one first; the receipts, and whether the task was cancelled meanwhile.

        Those that cannot be undone are reported, and the outcomes of an earlier undo whose process ended before they
        were told; `mark_told` notes that they were. A cancellation of `token` or of the waiting task stops it; the
        caller raises the latter. `saved` waits until the claim of an effect is saved: then no other process undoes it.
        It is waited for `save_timeout` seconds.
        """
        earlier = [each.stored.receipt for each in reversed(self._effects) if each.claimed and each.stored.untold]
        undoing = UndoPass([each for each in self._effects if not each.claimed], token, saved, save_timeout)
        await undoing.run()
        return (*filter(None, earlier), *undoing.receipts), undoing.interrupted

    def mark_told(self) -> None:
        """The outcomes so far were told to the caller and to the model: no other process has to."""
        for effect in self._effects:
            if effect.stored.receipt is not None and effect.stored.untold:
                effect.mark_told()
                self.changed(effect)


async def undo_in_memory(log: UndoLog, token: CancellationToken | None) -> tuple[UndoReceipt, ...]:
    """Undo what a log holds that is saved nowhere. A cancellation of the task is raised when nothing runs any more."""
    receipts, interrupted = await log.undo((token or CancellationToken()).child())
    log.mark_told()
    if interrupted:
        raise asyncio.CancelledError
    return receipts
