"""The bill of one run: an entry for each request, and what follows a request after the stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, structs

from .._threads.background_loop import running_loop
from .._threads.tasks import start_task
from ..conversation.answer import AnswerBuilder
from ..errors import (
    AuthenticationFailed,
    ModelError,
    ModelNotFound,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    RequestRejected,
    ServerError,
    TLSFailed,
)
from ..events import Delta
from ..models.base import Model, ModelRequest
from ..usage.estimate.answer_count import AnswerCounter
from ..usage.estimate.content import Preamble
from ..usage.estimate.estimator import UsageEstimator
from ..usage.estimate.figures import SentRequest, refused
from ..usage.estimate.received import ReceivedAnswer
from ..usage.figure import Provenance
from ..usage.ledger import HowItEnded, Ledger, LedgerEntry, TokenUsage, Usage, cost_of_tokens, summarise
from ..usage.stop_policy import RequestStopPolicy, StopAction
from .drain import DrainPool, UnseenAnswer, is_over, when_over
from .late_count import LateCount
from .lookup import LookupResult, usage_lookup

_log: Final = logging.getLogger("quiesce")

# Errors by which a provider turns a request away before it does any work: nothing is billed.
_REFUSALS: Final = (
    RateLimited,
    QuotaExceeded,
    Overloaded,
    ServerError,
    TLSFailed,
    AuthenticationFailed,
    ModelNotFound,
    RequestRejected,
)

# What is done about a cut request by asking the provider.
_LOOKS_UP: Final[tuple[StopAction, ...]] = ("lookup", "cancel_at_provider", "count")


class BillingTerms(Struct, frozen=True):
    """The model that is billed, its estimator, and what a stop does about its requests."""

    model: Model
    estimator: UsageEstimator
    policy: RequestStopPolicy
    drain_pool: DrainPool


class RequestBill:
    """Opens an entry before a request is sent and closes it when it has ended, one at a time."""

    __slots__ = (
        "__weakref__",
        "_answer",
        "_conversation",
        "_counter",
        "_drained_answer",
        "_followers",
        "_on_change",
        "_preamble",
        "_request",
        "_run_id",
        "_sent",
        "_stream",
        "_unseen_delta",
        "entry_id",
        "ledger",
        "terms",
    )

    def __init__(
        self, run_id: str, ledger: Ledger, conversation: object, on_change: Callable[[], None], terms: BillingTerms
    ) -> None:
        self.ledger: Final = ledger
        self._run_id: Final = run_id
        self._conversation: Final = conversation
        self._on_change: Final = on_change
        self.terms = terms
        self._preamble: Preamble | None = None
        self.entry_id: str | None = None
        """The ledger entry of the request that is under way."""
        self._request: ModelRequest | None = None
        self._sent: SentRequest | None = None
        self._answer: AnswerBuilder | None = None
        self._counter: AnswerCounter | None = None
        self._drained_answer: UnseenAnswer | None = None
        self._unseen_delta: UnseenAnswer | None = None
        self._stream: asyncio.Task[Any] | None = None
        self._followers: Final[list[asyncio.Task[Any]]] = []

    def switch_model(self, terms: BillingTerms) -> None:
        """From now on, requests go to another model."""
        self.terms = terms
        self._preamble = None

    # --- A request ----------------------------------------------------------------------------------------------

    def open(self, request: ModelRequest, answer: AnswerBuilder, *, turn: int, attempt: int) -> None:
        """Open a ledger entry for a request that is about to be sent."""
        most = None if request.max_tokens is None and not request.settings else _most_tokens(request)
        if self._preamble is None:
            known = self.terms.estimator.preamble(request.instructions, request.tools, request.output_schema)
            self._preamble = known
        self._sent = SentRequest(request.messages, self._preamble, most)
        self._request = request
        self._answer = answer
        self._counter = None
        self._drained_answer = None
        self._unseen_delta = None
        self._stream = None
        name = self.terms.model.name
        try:
            self.entry_id = self.ledger.open(run_id=self._run_id, model=name, turn=turn, attempt=attempt)
        except BaseException:  # such as Ctrl-C, when the entry is written already
            mine = (each for each in self.ledger.entries if each.run_id == self._run_id and each.ended == "open")
            self.entry_id = next((each.id for each in mine), None)
            raise

    def prepare(self) -> None:
        """Get ready for the end of the current request, while the provider works on it."""
        if self._sent is not None:
            self.terms.estimator.prepare(self._conversation, self._sent)

    def answer_counter(self) -> AnswerCounter:
        """The counter of the current answer, made at the first call; the answer is then counted in it."""
        if self._counter is None:
            self._counter = self.terms.estimator.answer_counter()
        return self._counter

    def input_estimate(self) -> int:
        """The estimated input tokens of the current request."""
        if self._sent is None:
            return 0
        figure = self.terms.estimator.input(self._conversation, self._sent)
        # A rule of thumb is too rough to stop a run for: then only what is certain counts.
        return figure.low if figure.source is Provenance.HEURISTIC else figure.value or figure.low

    def close(self, ended: HowItEnded, error: ModelError | None = None) -> LedgerEntry | None:
        """Write down what the current request used and how it ended, once. None when there is none."""
        entry_id, sent, answer, stream = self.entry_id, self._sent, self._answer, self._stream
        if entry_id is None or sent is None or answer is None:
            return None
        if stream is not None and self._drained_answer is not None:
            self.entry_id = None
            return self._close_followed(entry_id, sent, answer, stream, self._drained_answer)
        estimator, policy = self.terms.estimator, self.terms.policy
        goes_on = ended == "failed" or (ended != "completed" and policy.bill_goes_on)
        received = self._received(answer, ended, bill_goes_on=goes_on)
        if self._drained_answer is not None and self._drained_answer.began:
            # The stream ended before its task could be adopted.
            received = self._drained_answer.received(received)
            ended = "drained" if ended == "hung_up" and self._drained_answer.read_to_end else ended
        price = estimator.price
        if isinstance(error, _REFUSALS) and answer.usage is None and not answer.has_content:
            usage = refused()
        else:
            usage = estimator.record(self._conversation, sent, received)
        entry = self.ledger.update(
            entry_id,
            usage,
            price=price,
            ended=ended,
            request_id=answer.request_id or (None if error is None else error.request_id),
            error=None if error is None else type(error).__name__,
        )
        self.entry_id = None  # not before: an exception such as Ctrl-C would leave the entry open
        if ended == "hung_up" and policy.action in _LOOKS_UP:
            entry = self._start_lookup(entry, sent, received)
        return entry if entry.provisional else self._finish(entry, sent, received)

    def _received(self, answer: AnswerBuilder, ended: HowItEnded, *, bill_goes_on: bool) -> ReceivedAnswer:
        estimator = self.terms.estimator
        if answer.model and estimator.is_deployment:
            estimator.served_by(answer.model)
        received = ReceivedAnswer(
            answer.usage,
            answer.blocks(),
            None if answer.usage is None else answer.blocks_since_report(),
            self._counter,
            answer.complete,
            bill_goes_on,
            getattr(self.terms.model, "after_hang_up", 0.0) if ended == "hung_up" else 0.0,
        )
        return received if self._unseen_delta is None else self._unseen_delta.received(received)

    def count_unseen(self, delta: Delta) -> None:
        """Count a delta that came with the stop: no reader gets it, but it is billed."""
        if self.entry_id is not None and self._answer is not None:
            self._unseen_delta = UnseenAnswer(self._answer.usage, 0)
            self._unseen_delta.take(delta)

    # --- Draining: the stream goes on, for the receipt ----------------------------------------------------------

    def unseen_answer(self, *, allowed: bool) -> UnseenAnswer | None:
        """Counts the rest of the stream after a stop; None when the policy is to hang up. Made only once."""
        wanted = allowed and self.terms.policy.action == "drain" and self.terms.drain_pool.has_room(self.terms.policy)
        if wanted and self._drained_answer is None and self._answer is not None and self.entry_id is not None:
            self._drained_answer = UnseenAnswer(self._answer.usage, self.terms.policy.bytes)
        return self._drained_answer

    def adopt(self, stream: asyncio.Task[Any]) -> None:
        """Let the task that reads the model's stream go on in the drain pool instead of cancelling it."""
        self._stream = stream
        stream.set_name(f"draining for the receipt ({self.terms.model.name})")
        self.terms.drain_pool.follow(stream, self.terms.policy)
        self._followers.append(stream)

    def _close_followed(
        self,
        entry_id: str,
        sent: SentRequest,
        answer: AnswerBuilder,
        stream: asyncio.Task[Any],
        drained_answer: UnseenAnswer,
    ) -> LedgerEntry:
        received = self._received(answer, "draining", bill_goes_on=True)
        usage = self.terms.estimator.usage(self._conversation, sent, received)
        entry = self.ledger.update(
            entry_id, usage, price=self.terms.estimator.price, ended="draining", request_id=answer.request_id
        )
        entry = self.ledger.expect(entry_id)
        if is_over(stream):
            return self._drained(entry, sent, received, drained_answer)
        estimator = self.terms.estimator
        when_over(
            stream,
            lambda: self._drained(entry, sent, received, drained_answer) and None,
            lambda: self._supersede(entry, None, estimator, "hung_up") and None,
        )
        return entry

    def _drained(
        self, entry: LedgerEntry, sent: SentRequest, received: ReceivedAnswer, drained_answer: UnseenAnswer
    ) -> LedgerEntry:
        """The stream has come to its end, or was cut."""
        ended: HowItEnded = "drained" if drained_answer.read_to_end else "hung_up"
        usage: TokenUsage | None = None
        if drained_answer.began:
            received = drained_answer.received(received)
            usage = self.terms.estimator.record(self._conversation, sent, received)
        return self._finish(entry, sent, received, usage, ended)

    # --- Asking the provider about a request that was cut -------------------------------------------------------

    def _start_lookup(self, entry: LedgerEntry, sent: SentRequest, received: ReceivedAnswer) -> LedgerEntry:
        assert self._request is not None
        model, policy = self.terms.model, self.terms.policy
        lookup = usage_lookup(
            model, policy.action, request_id=entry.request_id, request=self._request, received=received
        )
        if lookup is None or _loop_is_ending() or not self.terms.drain_pool.has_room(policy):
            return entry
        task = start_task(lookup.ask(), name=f"{lookup.name} ({model.name})")
        self.terms.drain_pool.follow(task, policy)
        self._followers.append(task)
        entry = self.ledger.expect(entry.id)
        estimator = self.terms.estimator
        when_over(
            task,
            lambda: self._lookup_done(entry, sent, received, task),
            lambda: self._supersede(entry, None, estimator, None) and None,
        )
        return entry

    def _lookup_done(
        self, entry: LedgerEntry, sent: SentRequest, received: ReceivedAnswer, task: asyncio.Task[LookupResult]
    ) -> None:
        if not task.done() or task.cancelled():
            self._finish(entry, sent, received)
            return
        if (error := task.exception()) is not None:
            self._finish(entry, sent, received)
            _log.warning("The estimate of a cut request stays: looking it up failed (%s).", type(error).__name__)
            return
        result = task.result()
        ended: HowItEnded | None = "cancelled_at_provider" if result.cancelled else None
        usage: TokenUsage | None = None
        if result.report is not None:
            final = structs.replace(result.report, final=True)
            usage = self.terms.estimator.record(
                self._conversation, sent, ReceivedAnswer(final, received.blocks, complete=False)
            )
        elif result.input is not None or result.output is not None:
            received = structs.replace(received, counted_input=result.input, counted_output=result.output)
            usage = self.terms.estimator.usage(self._conversation, sent, received)
        self._finish(entry, sent, received, usage, ended)

    # --- The last figures ---------------------------------------------------------------------------------------

    def _finish(
        self,
        entry: LedgerEntry,
        sent: SentRequest,
        received: ReceivedAnswer,
        usage: TokenUsage | None = None,
        ended: HowItEnded | None = None,
    ) -> LedgerEntry:
        """Nothing more will be learnt about a request: `usage` is what was, if anything.

        Where it could be counted better in a vocabulary that is not loaded, or its price is in a list that is not,
        these are loaded first. The run does not wait for them.
        """
        estimator, known = self.terms.estimator, usage or entry.usage
        count = estimator.better_usage(self._conversation, sent, received, known)
        if count is None and not estimator.waits_for_price:
            return self._supersede(entry, usage, estimator, ended) if entry.provisional else entry
        entry = entry if entry.provisional else self.ledger.expect(entry.id)
        late = LateCount(
            lambda: self._supersede(entry, known if count is None else count(), estimator, ended) and None,
            lambda: self._supersede(entry, usage, estimator, ended) and None,
        )
        estimator.load_missing(late.loaded, vocabulary=count is not None)
        return entry

    def _supersede(
        self, entry: LedgerEntry, usage: TokenUsage | None, estimator: UsageEstimator, ended: HowItEnded | None
    ) -> LedgerEntry:
        if usage is not None:
            self.ledger.supersede(entry.id, usage, price=estimator.price, ended=ended)
        entry = self.ledger.settle(entry.id, ended)
        self._on_change()
        return entry

    # --- Looking ------------------------------------------------------------------------------------------------

    def usage(self) -> Usage:
        """What all requests used, the one that is under way included, as far as it has come."""
        return summarise(self.with_current(self.ledger.entries))

    def with_current(self, entries: tuple[LedgerEntry, ...]) -> tuple[LedgerEntry, ...]:
        """Entries of the ledger, with the figures so far of the request that is under way."""
        entry_id, sent, answer = self.entry_id, self._sent, self._answer
        if entry_id is None or sent is None or answer is None:
            return entries
        since = None if answer.usage is None else answer.blocks_since_report()
        received = ReceivedAnswer(answer.usage, answer.blocks(), since, complete=answer.complete)
        self.terms.estimator.load()  # a later look finds it counted
        so_far = self.terms.estimator.usage(self._conversation, sent, received)
        return tuple(
            structs.replace(entry, usage=so_far, cost=cost_of_tokens(self.terms.estimator.price, so_far))
            if entry.id == entry_id
            else entry
            for entry in entries
        )

    def followed(self) -> tuple[str, ...]:
        """The names of what still goes on in the background."""
        return tuple([task.get_name() for task in self._followers if not is_over(task)]) if self._followers else ()

    def cut(self) -> None:
        """Follow nothing any longer: the estimates stay."""
        for task in self._followers:
            task.cancel()


def _loop_is_ending() -> bool:
    """Whether the loop was closed, or this task was cancelled from outside, as by a loop that shuts down."""
    task = None if running_loop() is None else asyncio.current_task()
    return task is None or task.cancelling() > 0


def _most_tokens(request: ModelRequest) -> int | None:
    settings = request.settings or {}
    named = (settings.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    limits = [limit for limit in (request.max_tokens, *named) if isinstance(limit, int)]
    return min(limits) if limits else None
