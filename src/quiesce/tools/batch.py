"""The calls of one turn: started together or one by one, stopped each by its own policy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from ..cancellation import BoundedShield, Mode
from ..interrupts import PendingCall, PendingTurn
from ..messages import ToolCall, ToolResult
from ..receipt import CallReceipt
from .call import CallInProgress
from .host import ToolHost
from .tool import Tool


class Batch:
    """Runs a turn's calls in lanes: a lane for each call that may run beside others, one for those that may not."""

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
        self.records: Final = tuple(
            CallInProgress(call, tools.get(call.name), host, None if pending is None else pending.call(call.id))
            for call in calls
        )
        self._lanes: Final = _lanes(self.records, sequential=sequential)
        self._all_done: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Start the calls and wait for them. When a stop interrupts the wait, the calls go on until `stop()`."""
        self._all_done = asyncio.get_running_loop().create_future()
        for lane in self._lanes:
            self._advance(lane)
        self._check_done()
        # asyncio.wait, unlike a plain await, leaves the future alone when this task is cancelled.
        await asyncio.wait((self._all_done,))

    def _advance(self, lane: deque[CallInProgress]) -> None:
        """Start the lane's next call, unless a stop was asked for. A call that waits for a person holds up its lane."""
        while lane and lane[0].result is not None:  # finished before the turn had to wait, or cancelled before its turn
            lane.popleft()
        if lane and not lane[0].suspended and not self._work_token.wants(Mode.AFTER_TOOLS):
            record = lane[0]
            record.start(lambda: self._on_rest(lane, record))

    def cancel_call(self, call_id: str, why: str) -> bool:
        """Stop one call by its policy; the others, and the turn, go on. Whether it was there and not over."""
        if not self.has_call(call_id):
            return False
        (record,) = (each for each in self.records if each.call.id == call_id)
        held_up = self._lanes if record.suspended and self._all_done is not None else ()
        stopped = record.stop_alone(why)
        for lane in held_up:
            self._on_rest(lane, record)
        return stopped

    def has_call(self, call_id: str) -> bool:
        """Whether a call with this id is here and has no result yet, and the turn still goes on. From any thread."""
        over = self._all_done is not None and self._all_done.done()
        return not over and any(record.call.id == call_id and record.result is None for record in self.records)

    def _on_rest(self, lane: deque[CallInProgress], record: CallInProgress) -> None:
        if lane and lane[0] is record and not record.suspended:
            lane.popleft()
            self._advance(lane)
        self._check_done()

    def _check_done(self) -> None:
        if self._all_done is not None and not self._all_done.done() and not self._running():
            self._all_done.set_result(None)

    def _running(self) -> list[CallInProgress]:
        return [record for record in self.records if record.running]

    async def stop(self, shield: BoundedShield, urgent: asyncio.Future[None], *, give_way: bool = False) -> None:
        """Stop what runs, each by its policy and within its grace. `urgent` is done when no grace is left.

        With `give_way`, `urgent` means that somebody else will do this, and it is left to them.
        """
        clock = asyncio.get_running_loop().time
        mode = self._work_token.mode or Mode.NOW
        deadlines = self._request_stops(mode)
        while running := self._running():
            tasks = [record.task for record in running if record.task is not None]
            patience = max(0.0, min(deadlines[record] for record in running) - clock())
            await shield.wait(tasks, seconds=patience, unless=None if mode is Mode.KILL else urgent)
            if give_way and urgent.done():
                return
            if urgent.done() and mode is not Mode.KILL:
                mode = Mode.KILL
                deadlines = self._request_stops(mode)
            await self._give_up([record for record in self._running() if clock() >= deadlines[record]], shield)

    def _request_stops(self, mode: Mode) -> dict[CallInProgress, float]:
        """Ask every running call to stop; when to give each of them up."""
        clock = asyncio.get_running_loop().time
        running = self._running()
        for record in running:
            record.request_stop(mode)
        return {record: clock() + record.grace(mode) for record in running}

    async def _give_up(self, records: list[CallInProgress], shield: BoundedShield) -> None:
        """The grace is over. A task that was allowed to finish is cancelled now; what still runs is left behind."""
        cancelled = [record.task for record in records if record.cancel_at_last() and record.task is not None]
        await shield.wait(cancelled, seconds=max((record.last_breath for record in records), default=0.0))
        for record in records:
            if record.running:
                record.leave_behind()

    @property
    def suspended(self) -> bool:
        """Whether a call waits for a person."""
        return any(record.suspended for record in self.records)

    def pending(self) -> tuple[PendingCall, ...]:
        """The calls as they wait in a `PendingTurn`."""
        return tuple(record.asking.pending(record.result) for record in self.records)

    @property
    def results(self) -> dict[str, ToolResult]:
        """What is known of each call so far, by call id."""
        return {record.call.id: record.result for record in self.records if record.result is not None}

    def announce(self, *, finished_only: bool = False) -> None:
        """Tell the readers about every result that they have not heard of."""
        for record in self.records:
            if record.result is not None or not finished_only:
                record.announce()

    def receipts(self) -> tuple[CallReceipt, ...]:
        """The lines for the receipt, in the order of the calls."""
        return tuple(record.receipt() for record in self.records)

    def cut_calls(self) -> tuple[ToolCall, ...]:
        """The calls that could have been undone, began, and did not complete."""
        return tuple(record.call for record in self.records if record.was_cut and record.can_be_undone)

    def undoable_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have completed and can be undone."""
        return tuple(record.call for record in self.records if record.completed and record.can_be_undone)

    def still_running(self) -> tuple[str, ...]:
        """The names of the calls that were left behind and have not ended since."""
        return tuple(record.remains for record in self.records if record.still_running)

    def gave_up(self, call_id: str | None) -> bool:
        """Whether a call was left behind and has not ended since."""
        return any(record.call.id == call_id and record.still_running for record in self.records)

    def waiting_for(self) -> tuple[str, ...]:
        """The names of the tools that run right now, and what they are protected in."""
        return tuple(record.label for record in self._running())


def _lanes(records: tuple[CallInProgress, ...], *, sequential: bool) -> list[deque[CallInProgress]]:
    one_by_one: deque[CallInProgress] = deque()
    lanes: list[deque[CallInProgress]] = []
    for record in records:
        if sequential or (record.tool is not None and record.tool.sequential):
            one_by_one.append(record)
        else:
            lanes.append(deque((record,)))
    return [*lanes, one_by_one] if one_by_one else lanes
