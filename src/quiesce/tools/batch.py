"""The tool calls of one turn: run in parallel or in their order, stopped each by its own policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from ..cancellation import BoundedShield, Mode
from ..interrupts import Interrupt, PendingCall, PendingTurn
from ..messages import Outcome, ToolCall, ToolResult
from .call import CallInProgress
from .host import ToolHost
from .tool import Tool


class ToolBatch:
    """Runs a turn's calls. All run in parallel, except for those that are sequential: these wait for earlier calls."""

    __slots__ = ("_all_done", "_earlier", "_host", "_waiting", "_work_token", "calls")

    def __init__(
        self,
        calls: Iterable[ToolCall],
        tools: Mapping[str, Tool],
        host: ToolHost,
        *,
        sequential: bool,
        pending: PendingTurn | None = None,
    ) -> None:
        self._work_token: Final = host.work_token
        self._host: Final = host
        self.calls = tuple(
            CallInProgress(
                call, tools.get(call.name), host, self._work_token, None if pending is None else pending.call(call.id)
            )
            for call in calls
        )
        in_order = [each.questions.call for each in self.calls]
        self._earlier: Final = earlier_calls(in_order, tools, sequential=sequential) if len(in_order) > 1 else [()]
        self._waiting: Final = set(range(len(self.calls)))
        """The positions of the calls that have not started."""
        self._all_done: asyncio.Future[None] | None = None

    # --- Running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start the calls and wait for them. When a stop interrupts the wait, the calls go on until `stop()`."""
        self._all_done = asyncio.get_running_loop().create_future()
        self._on_done()
        # asyncio.wait, unlike a plain await, leaves the future alone when this task is cancelled.
        await asyncio.wait((self._all_done,))

    def _start_ready(self) -> None:
        """Start each call that waits for no other one, unless a stop was requested."""
        for position in sorted(self._waiting):
            call = self.calls[position]
            if call.result is not None:  # it ended in an earlier run, or was cancelled before its start
                self._waiting.discard(position)
            elif self._work_token.stop_asked and self._work_token.wants(Mode.AFTER_TOOLS):
                return
            elif not call.questions.interrupts and not any(map(self._blocks, self._earlier[position])):
                self._waiting.discard(position)
                call.start(self._on_done)

    def _blocks(self, position: int) -> bool:
        """Whether later calls with its key wait for this one. A call that waits for a person blocks them too."""
        call = self.calls[position]
        return call.running or call.suspended or (position in self._waiting and call.result is None)

    def answer(self, answered: Iterable[PendingCall]) -> None:
        """Go on with calls that waited for a person, as they are after the answers. The others go on meanwhile."""
        for each in answered:
            (position,) = (index for index, call in enumerate(self.calls) if call.call.id == each.call.id)
            old = self.calls[position]
            if not old.suspended or each == old.questions.pending(None):
                continue
            new = CallInProgress(old.call, old.tool, self._host, self._host.work_token, each)
            self.calls = (*self.calls[:position], new, *self.calls[position + 1 :])
            self._waiting.add(position)
            if new.result is not None:
                new.announce()
            if self._all_done is not None:
                self._on_done()

    def cancel_call(self, call_id: str, reason: str) -> bool:
        """Stop one call by its policy; the others, and the turn, go on. Returns whether it was still under way."""
        if not self.has_call(call_id):
            return False
        (call,) = (each for each in self.calls if each.call.id == call_id)
        cancelled = call.cancel(reason)
        if self._all_done is not None:  # later calls may have waited for this one, which waited itself
            self._on_done()
        return cancelled

    def has_call(self, call_id: str) -> bool:
        """Whether a call with this id is here and has no result yet, and the turn still goes on. From any thread."""
        return self.is_open and any(each.call.id == call_id and each.result is None for each in self.calls)

    def _on_done(self) -> None:
        if self._waiting:
            self._start_ready()
        if self._all_done is not None and not self._all_done.done() and not self._running():
            self._all_done.set_result(None)

    def _running(self) -> list[CallInProgress]:
        """The calls that are `running`, without a call of it for each."""
        return [
            each
            for each in self.calls
            if each.task is not None and not each.task.done() and each.times.abandoned is None
        ]

    # --- Stopping -----------------------------------------------------------------------------------------------

    async def stop(self, shield: BoundedShield, urgent: asyncio.Future[None], *, defer: bool = False) -> None:
        """Stop what runs, each call by its policy and within its grace. `urgent` is done when no grace is left.

        With `defer`, this returns as soon as `urgent` is done: the stop of the run goes on from there.
        """
        self._waiting.clear()  # a run that has failed was not asked to stop, and would start them
        clock = asyncio.get_running_loop().time
        mode = self._work_token.mode or Mode.NOW
        deadlines = self._request_stops(mode)
        running = list(deadlines)
        while running:
            tasks = [each.task for each in running if each.task is not None]
            timeout = max(0.0, min(deadlines[each] for each in running) - clock())
            await shield.wait(tasks, seconds=timeout, unless=None if mode is Mode.KILL else urgent)
            if defer and urgent.done():
                return
            if urgent.done() and mode is not Mode.KILL:
                mode = Mode.KILL
                deadlines = self._request_stops(mode)
            running = self._running()
            overdue = [each for each in running if clock() >= deadlines[each]]
            if overdue:
                await self._abandon(overdue, shield)
                running = self._running()

    def _request_stops(self, mode: Mode) -> dict[CallInProgress, float]:
        """Ask every running call to stop. Returns the time at which each of them is abandoned."""
        clock = asyncio.get_running_loop().time
        deadlines: dict[CallInProgress, float] = {}
        for each in self._running():
            seconds = each.request_stop(mode)
            deadlines[each] = clock() + seconds
        return deadlines

    async def _abandon(self, overdue: list[CallInProgress], shield: BoundedShield) -> None:
        """End calls whose grace is over: cancel a task that was allowed to finish, abandon what still runs then."""
        cancelled = [each.task for each in overdue if each.cancel_after_grace() and each.task is not None]
        await shield.wait(
            cancelled, seconds=max((each.stop.final_grace(each.invocation) for each in overdue), default=0.0)
        )
        for each in overdue:
            if each.running:
                each.abandon()

    def abandon(self) -> None:
        """Wait no longer for what runs: its tasks are cancelled, and their ends are late outcomes."""
        self._waiting.clear()
        for each in self._running():
            if each.task is not None:
                each.task.cancel()
            each.abandon()

    def end_with_loop(self) -> None:
        """The loop was closed: end what runs, and start no more."""
        self._waiting.clear()
        for each in self._running():
            each.end_with_loop()

    # --- State and results --------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether a tool has begun."""
        return any(each.times.started is not None for each in self.calls)

    @property
    def suspended(self) -> bool:
        """Whether a call waits for a person."""
        return any(each.result is None and each.questions.interrupts for each in self.calls)

    @property
    def is_open(self) -> bool:
        """Whether calls can still begin: the batch has not ended."""
        return self._all_done is None or not self._all_done.done()

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What the calls that wait ask a person. From any thread."""
        return tuple(each for call in self.calls if call.suspended for each in call.questions.interrupts)

    def pending(self) -> tuple[PendingCall, ...]:
        """The calls as they wait in a `PendingTurn`."""
        return tuple(each.questions.pending(each.result) for each in self.calls)

    @property
    def results(self) -> dict[str, ToolResult]:
        """The results so far, by call id."""
        return {each.call.id: each.result for each in self.calls if each.result is not None}

    def announce(self, *, finished_only: bool = False) -> None:
        """Emit every result that was not emitted before to the run's readers."""
        for each in self.calls:
            if not each.announced and (each.result is not None or not finished_only):
                each.announce()

    def cut_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have a compensation, began, and did not complete."""
        return tuple(
            each.call
            for each in self.calls
            if each.tool is not None
            and each.tool.compensation is not None
            and each.result is not None
            and each.result.outcome not in (Outcome.COMPLETED, Outcome.NEVER_STARTED)
        )

    def undoable_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have completed and can be undone."""
        return tuple(each.call for each in self.calls if each.completed and each.can_be_undone)

    def has_abandoned(self, call_id: str | None) -> bool:
        """Whether this call was abandoned and has not ended since."""
        return any(each.call.id == call_id and each.still_running for each in self.calls)

    def waiting_for(self) -> tuple[str, ...]:
        """The names of the tools that run right now, and of their shields."""
        return tuple(each.invocation.label for each in self._running())


def earlier_calls(calls: Iterable[ToolCall], tools: Mapping[str, Tool], *, sequential: bool) -> list[tuple[int, ...]]:
    """For each call the positions of the earlier calls that must be over before it starts."""
    keys = [True if sequential else _key(tools.get(call.name), call) for call in calls]
    return [
        ()
        if key is None
        else tuple(
            earlier
            for earlier, other in enumerate(keys[:position])
            if other is not None and (key is True or other is True or other == key)
        )
        for position, key in enumerate(keys)
    ]


def _key(tool: Tool | None, call: ToolCall) -> object:
    return None if tool is None else tool.sequence_key(call.arguments)
