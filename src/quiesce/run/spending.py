"""What a run spends: its bill, the bills of its side requests, and its count against limits."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ..billing.drain import UnseenAnswer
from ..billing.request_bill import BillingTerms, RequestBill
from ..cancellation import Cause, Mode
from ..conversation.answer import AnswerBuilder
from ..errors import ModelError
from ..events import ModelCallEnded
from ..interrupts import PendingLimit
from ..limits import ReachedLimit
from ..models.base import Model, ModelRequest
from ..receipt import update_receipt
from ..usage.budget import BudgetUse, spending
from ..usage.ledger import HowItEnded, Ledger, LedgerEntry, Usage, summarise
from .config import RunConfig, billing_terms, open_estimator
from .state_ref import StateRef


class MiddlewareRequest:
    """A request that middleware has sent: its bill, and what it has received."""

    def __init__(self, bill: RequestBill, answer: AnswerBuilder) -> None:
        self.bill: Final = bill
        self.answer: Final = answer
        self.error: ModelError | None = None
        self.hung_up = False
        self.reader: asyncio.Task[Any] | None = None
        """The task that waits for the next delta right now."""

    def close(self) -> LedgerEntry | None:
        """Write down what it used and how it ended, once."""
        if self.answer.complete:
            return self.bill.close("completed")
        if self.error is not None:
            return self.bill.close("failed", self.error)
        return self.bill.close("hung_up")


class Spending:
    """The money side of a run. Only for the run's own loop."""

    __slots__ = (
        "__weakref__",
        "_configs",
        "_ref",
        "_refresh",
        "bill",
        "budget_use",
        "cause",
        "last_answer",
        "reached",
        "resumed",
        "sent",
        "side_bills",
    )

    def __init__(self, ref: StateRef, ledger: Ledger, terms: BillingTerms) -> None:
        state = ref.state
        self._ref: Final = ref
        self._refresh: Final = lambda: ref.state.spending.refresh_receipt()  # noqa: PLW0108  (it would keep the state)
        self.bill: Final = RequestBill(state.run_id, ledger, state.claim.conversation, self._refresh, terms)
        self.side_bills: Final[list[RequestBill]] = []
        self.sent: Final[list[MiddlewareRequest]] = []
        """The requests of middleware that have not ended."""
        self._configs: Final[dict[int, RunConfig]] = {}
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
        """Write down what the current request used and how it ended, once. What it taught is kept with the session.

        Requests of middleware that are still open end here too, each in its own way.
        """
        for sent in tuple(self.sent):
            self.close_sent(sent)
        entry = self.bill.close(ended, error)
        if entry is None:
            return
        state = self._ref.state
        journal = state.saving.journal
        if journal is not None:
            learnt = self.bill.terms.estimator.unsaved_calibration(state.claim.conversation)
            if learnt is not None:
                journal.set_value(*learnt)
        self.book(entry)

    def book(self, entry: LedgerEntry) -> None:
        """Count what a request used against the limits, of the parents too, and tell the readers."""
        state, spent = self._ref.state, spending(entry)
        for each in state.family.lineage:
            each.spending.budget_use.note(entry.id, spent)
            if each.claim.task is not None and each.saving.journal is not None:
                each.claim.task.save()
        state.events.push(ModelCallEnded(entry))

    def send(self, model: Model, request: ModelRequest, *, learn: bool) -> MiddlewareRequest:
        """Open the bill of a request that middleware is about to send.

        `learn` says that what it teaches about tokens is about this conversation.
        """
        state = self._ref.state
        terms = self.bill.terms if model is self.bill.terms.model else billing_terms(self.config_for(model))
        answer = AnswerBuilder()
        subject = state.claim.conversation if learn else answer
        sent = MiddlewareRequest(RequestBill(state.run_id, self.bill.ledger, subject, self._refresh, terms), answer)
        self.side_bills.append(sent.bill)
        self.sent.append(sent)  # first: an entry that is open is closed at the end of the run
        sent.bill.open(request, answer, turn=state.progress.turn_number, attempt=state.progress.attempt)
        return sent

    def close_sent(self, sent: MiddlewareRequest) -> None:
        """Write down how a request of middleware has ended, once."""
        entry = sent.close()
        if entry is not None:
            self.sent.remove(sent)
            self.book(entry)

    def config_for(self, model: Model) -> RunConfig:
        """The configuration of this run's requests to another model, made once for each."""
        config = self._configs.get(id(model))
        if config is None:
            run = self._ref.state.config
            config = RunConfig(run.agent, model, drain_pool=run.drain_pool, estimator=open_estimator(model))
            self._configs[id(model)] = config
        return config

    def usage(self) -> Usage:
        """What all requests used, those that are under way included, as far as they have come."""
        entries = self.bill.ledger.entries
        for bill in (self.bill, *(sent.bill for sent in tuple(self.sent))):
            entries = bill.with_current(entries)
        return summarise(entries)

    def drain(self, bill: RequestBill | None = None) -> UnseenAnswer | None:
        """What reads the model's stream on after a stop, to learn what is billed; None where hanging up is right."""
        bill = bill or self.bill
        if bill.terms.policy.action != "drain":
            return None
        token = self._ref.state.token
        ending = token.cause is not None and token.cause.source == "shutdown"
        return bill.unseen_answer(allowed=not ending and not token.wants(Mode.KILL))

    def adopt_stream(self, stream: asyncio.Task[Any]) -> bool:
        """Let the task that reads the model's stream go on, for the bill, instead of cancelling it."""
        bill = self.bill
        if self.sent:  # the task runs middleware: it goes on only if it waits for the model and nothing else
            bill = next((sent.bill for sent in self.sent if sent.reader is stream), None)
        if bill is None or stream.done() or self.drain(bill) is None:
            return False
        bill.adopt(stream)
        return True

    def refresh_receipt(self) -> None:
        """Put better figures on the receipts of the run and of its parents, or say that none will come."""
        closed = {entry.id: spending(entry) for entry in self.bill.ledger.entries if entry.ended != "open"}
        for state in self._ref.state.family.lineage:
            for entry_id, spent in closed.items():
                state.spending.budget_use.note(entry_id, spent)
            if state.result is not None:
                usage = state.spending.bill.ledger.usage
                update_receipt(state.result.receipt, usage=usage, still_running=state.still_running())
            if state.progress.at_rest.done():
                state.let_go()

    def followed(self) -> tuple[str, ...]:
        """The names of the background tasks that learn what is billed."""
        names = self.bill.followed()
        return (*names, *(name for bill in self.side_bills for name in bill.followed())) if self.side_bills else names
