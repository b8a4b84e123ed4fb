"""A task: a prompt and everything that follows from it, over all runs that it takes."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct, structs

from .interrupts import UsedBudget
from .usage.ledger import NOTHING_KNOWN, TokenUsage, Usage, added

NO_USAGE = Usage(0, TokenUsage(), None, ())


class Task(Struct, frozen=True):
    """A prompt and everything that follows from it: runs that go on after a person's answer, after a stop or a restart.

    Its runs share one budget, one deadline and one undo. `id` is the id of the first run; `run_ids` has all of them, in
    order. `used` is what they have used of `limits`, runs of sub-agents included. `timeout` is what they may take
    together, and `seconds` what those that have ended took: the time that a person takes to answer does not count.
    `usage` is the sum of their bills.
    """

    id: str
    started: float
    run_ids: tuple[str, ...] = ()
    limits: dict[str, Decimal] = {}
    used: UsedBudget = UsedBudget()
    timeout: float | None = None
    seconds: float = 0.0
    usage: Usage = NO_USAGE
    is_open: bool = False
    """Whether the last run has not ended. Found when the task goes on: that run crashed, and its bill is not known."""

    @property
    def usage_so_far(self) -> Usage:
        """What the runs that have ended used. A run that crashed counts as a call with unknown usage."""
        return added(self.usage, Usage(1, NOTHING_KNOWN, None, ())) if self.is_open else self.usage

    def with_run(self, run_id: str) -> Task:
        """The task as it is when another run goes on with it."""
        return structs.replace(self, run_ids=(*self.run_ids, run_id), usage=self.usage_so_far, is_open=True)
