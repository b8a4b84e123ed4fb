"""The task that a run is a part of: begun by a prompt, or joined by a run that goes on after an earlier one."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import structs
from msgspec.structs import replace

from .._threads.loop_callback import made_again
from ..conversation.paused import end_paused, keep_paused, take_paused
from ..limits import Limits
from ..task import Task
from ..tools.background import PausedProcesses
from ..usage.ledger import Usage, added
from .state import RunState
from .undo import begin_effects, join_effects, tell_of_interrupted_undo

if TYPE_CHECKING:
    import asyncio


class RunningTask:
    """A task and the run that goes on with it. Only for the run's own loop."""

    __slots__ = ("_began", "_record", "_ref", "_timer")

    def __init__(self, state: RunState, record: Task) -> None:
        self._ref: Final = state.family.ref
        self._record = record
        self._began: Final = state.progress.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """The id of the task; a run that a tool has started belongs to the task of the run above."""
        parent = self._ref.state.family.parent
        task = None if parent is None else parent.state.claim.task
        return self._record.id if task is None else task.id

    @property
    def is_joined(self) -> bool:
        """Whether earlier runs belong to the task."""
        return len(self._record.run_ids) > 1

    def begin(self) -> None:
        """The run has begun: it is a part of the task from now on, and has what is left of its time."""
        state, record, is_joined = self._ref.state, self._record, self.is_joined
        if state.family.parent is None:
            paused = take_paused(record.id)
            if isinstance(paused, PausedProcesses):
                state.tools.processes = paused.take() or state.tools.processes
            if not is_joined:
                begin_effects(state, record.id)
        if is_joined and record.timeout is not None:
            left = max(0.0, record.timeout - record.seconds)
            self._timer = state.progress.loop.call_later(left, made_again(self._on_deadline))
        self._write(state)

    def _on_deadline(self) -> None:
        what = f"{self._record.timeout:g} s have passed, over all runs of the task"
        self._ref.state.token.cancel(what, source="deadline")

    def save(self) -> None:
        """Save what the task has used, with what happens next, so that a crash does not give it a new budget."""
        self._write(self._ref.state)

    def end(self, used: Usage) -> Task:
        """The run has ended, and used so much: the task with all that its runs have used."""
        if self._timer is not None:
            self._timer.cancel()
        return self._write(self._ref.state, used)

    def pause(self) -> None:
        """The run has ended, and the task waits for a person: its background processes go on."""
        keep_paused(self.id, PausedProcesses(self._ref.state.tools.processes))

    def _write(self, state: RunState, used: Usage | None = None) -> Task:
        """Keep the task as it is now with the conversation. The usage of this run is added when it has ended."""
        before = self._record
        record = structs.replace(
            before,
            limits={name: Decimal(value) for name, value in state.config.limits.values.items()},
            used=state.spending.budget_use.used(),
            seconds=before.seconds + state.progress.loop.time() - self._began,
            usage=before.usage if used is None else added(before.usage, used),
            is_open=before.is_open if used is None else False,
        )
        state.claim.conversation.set_task(record)
        return record


def begin_or_join_task(state: RunState) -> RunningTask:
    """The task of a run that has its conversation. A prompt begins one; a run that goes on has what is left of it.

    Its limits are those that the task began with, unless the call names others.
    """
    given, known = state.claim.input, state.claim.conversation.task
    tell_of_interrupted_undo(state.claim.conversation)
    if known is None or (given.prompt is not None and given.answers is None):
        if known is not None:
            end_paused(known.id)
        record = Task(state.run_id, time.time(), timeout=given.timeout)
        return RunningTask(state, record.with_run(state.run_id))
    state.spending.budget_use.begin_with(known.used)
    if given.limits is None:
        state.config = replace(state.config, limits=Limits.of(known.limits))
    if given.has_own_timeout:
        known = structs.replace(known, timeout=None if given.timeout is None else known.seconds + given.timeout)
    if state.family.parent is None:
        join_effects(state, known.id)
    return RunningTask(state, known.with_run(state.run_id))
