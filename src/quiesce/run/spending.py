"""What a run spends: its bill, the bills of its side requests, and its count against limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ..billing.drain import UnseenAnswer
from ..billing.request_bill import BillingTerms, RequestBill
from ..cancellation import Cause, Mode
from ..errors import ModelError
from ..events import ModelCallEnded
from ..interrupts import PendingLimit
from ..limits import ReachedLimit
from ..usage.budget import BudgetUse, spending
from ..usage.ledger import HowItEnded, Ledger, LedgerEntry

if TYPE_CHECKING:
    from .state import RunState


class Spending:
    """The money side of a run. Only for the run's own loop."""

    def __init__(self, state: RunState, ledger: Ledger, terms: BillingTerms) -> None:
        self._state: Final = state
        self.bill: Final = RequestBill(state.run_id, ledger, state.claim.conversation, self.refresh_receipt, terms)
        self.side_bills: Final[list[RequestBill]] = []
        self.budget_use: Final = BudgetUse()
        self.reached: ReachedLimit | None = None
        """The first limit of this run that was reached."""
        self.last_answer = False
        """Whether the answer under way is the last one, without tools, because of that limit."""
        self.cause: Cause | None = None
        """Why the run ended, when it ended with such an answer."""
        self.resumed: PendingLimit | None = None
        """The limit that a person has raised, for this run to go on."""

    def close_entry(self, ended: HowItEnded, error: ModelError | None = None) -> None:
        """Write down what the current request used and how it ended, once. What it taught is kept with the session."""
        entry = self.bill.close(ended, error)
        if entry is None:
            return
        journal = self._state.saving.journal
        if journal is not None:
            learnt = self.bill.terms.estimator.unsaved_calibration(self._state.claim.conversation)
            if learnt is not None:
                journal.set_value(*learnt)
        self.book(entry)

    def book(self, entry: LedgerEntry) -> None:
        """Count what a request used against the limits, of the parents too, and tell the readers."""
        spent = spending(entry)
        for state in self._state.family.lineage:
            state.spending.budget_use.note(entry.id, spent)
        self._state.events.push(ModelCallEnded(entry))

    def drain(self) -> UnseenAnswer | None:
        """What reads the model's stream on after a stop, to learn what is billed; None where hanging up is right."""
        token = self._state.token
        ending = token.cause is not None and token.cause.source == "shutdown"
        return self.bill.unseen_answer(allowed=not ending and not token.wants(Mode.KILL))

    def adopt_stream(self, stream: asyncio.Task[Any]) -> bool:
        """Let the task that reads the model's stream go on, for the bill, instead of cancelling it."""
        if stream.done() or self.drain() is None:
            return False
        self.bill.adopt(stream)
        return True

    def refresh_receipt(self) -> None:
        """Put better figures on the receipts of the run and of its parents, or say that none will come."""
        closed = {entry.id: spending(entry) for entry in self.bill.ledger.entries if entry.ended != "open"}
        for state in self._state.family.lineage:
            for entry_id, spent in closed.items():
                state.spending.budget_use.note(entry_id, spent)
            if state.result is not None:
                state.result.receipt.usage = state.spending.bill.ledger.usage
                state.result.receipt.still_running = state.still_running()

    def followed(self) -> tuple[str, ...]:
        """The names of the background tasks that learn what is billed."""
        return tuple(name for bill in (self.bill, *self.side_bills) for name in bill.followed())
