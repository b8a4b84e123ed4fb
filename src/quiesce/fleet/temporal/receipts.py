"""The receipt of a run on Temporal, from those of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...cancellation import Cause, Mode
from ...messages import AssistantMessage, Message
from ...phases import Phase
from ...receipt import CallReceipt, Receipt
from ...task import Task
from ...usage.ledger import LedgerEntry, summarise

CANCELLED: Final = Cause("remote", "Temporal has cancelled the activity", at=0.0, clock=0.0)
"""The cause with which an activity stops its step. The workflow knows the cause of that."""
SHUTDOWN: Final = Cause("shutdown", "the worker is shutting down", at=0.0, clock=0.0)


class StepReceipts:
    """What the steps of a run have used and done. Only for its workflow."""

    def __init__(self, run_id: str) -> None:
        self._run_id: Final = run_id
        self._entries: Final[list[LedgerEntry]] = []
        self._calls: Final[dict[str, CallReceipt]] = {}
        self._still_running: Final[list[str]] = []
        self._last: Receipt | None = None
        self._cut: Receipt | None = None
        """The receipt of the step that a stop has cut first."""

    @property
    def requests(self) -> int:
        """How many requests were sent, as far as that is known."""
        return len(self._entries)

    def was_cut(self, receipt: Receipt) -> bool:
        """Whether a step was stopped because its activity was cancelled."""
        return receipt.stop_reason == "cancelled" and _is(receipt.cause, CANCELLED)

    def was_drained(self, receipt: Receipt) -> bool:
        """Whether a step was stopped because its worker has shut down."""
        return receipt.stop_reason == "cancelled" and _is(receipt.cause, SHUTDOWN)

    def add(self, receipt: Receipt) -> None:
        """A step has ended."""
        self._last = receipt
        if self.was_cut(receipt):
            self._cut = self._cut or receipt
        self._still_running.extend(receipt.still_running)
        self.book(receipt.usage.entries)

    def book(self, entries: Iterable[LedgerEntry]) -> None:
        """Add requests to the ledger. Their figures are final: no later report can correct them here."""
        for each in entries:
            entry_id = f"{self._run_id}/{len(self._entries) + 1}"
            self._entries.append(replace(each, id=entry_id, provisional=False))

    def note_calls(self, calls: Iterable[CallReceipt]) -> None:
        """Record the outcomes of tool calls; a later outcome of the same call replaces the earlier one."""
        self._calls.update((each.call_id, each) for each in calls)

    def receipt(
        self,
        reason: Any,
        stop: tuple[Cause, Mode] | None,
        now: float,
        messages: tuple[Message, ...],
        task: bytes | None,
    ) -> Receipt:
        """The receipt of the run. `stop` is the one that was asked of the workflow, if that is why it ended."""
        step = self._cut if stop is not None else self._last
        cause = self._cause(stop, step)
        last = messages[-1] if messages else None
        return Receipt(
            run_id=self._run_id,
            stop_reason=reason,
            cause=cause,
            mode=stop[1] if stop is not None else None if step is None else step.mode,
            phase=self._phase(step),
            latency=max(0.0, now - stop[0].at) if stop is not None else None if step is None else step.latency,
            calls=tuple(self._calls.values()),
            still_running=tuple(self._still_running),
            usage=summarise(tuple(self._entries)),
            kept_text=len(last.text) if isinstance(last, AssistantMessage) and last.cut else 0,
            waited_for=() if step is None else step.waited_for,
            asked_during=None if step is None else step.asked_during,
            limits=() if self._last is None else self._last.limits,
            task=None if task is None else replace(msgspec.json.decode(task, type=Task), run_ids=(self._run_id,)),
            processes=() if self._last is None else self._last.processes,
        )

    def _cause(self, stop: tuple[Cause, Mode] | None, step: Receipt | None) -> Cause | None:
        """The cause that was asked, with the moment at which the token of the step that was cut got it."""
        if stop is None:
            return None if step is None else step.cause
        clock = 0.0 if step is None or step.cause is None else step.cause.clock
        return replace(stop[0], clock=clock)

    def _phase(self, step: Receipt | None) -> Phase:
        if step is not None:
            return step.phase
        if self._last is None:
            return Phase.WAITING
        return Phase.TURN_START if self._last.phase is Phase.ACTING else Phase.ANSWERED


def _is(cause: Cause | None, known: Cause) -> bool:
    return cause is not None and (cause.source, cause.reason) == (known.source, known.reason)
