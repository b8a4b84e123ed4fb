"""The context window: what of a long conversation a run sends to its model."""

from __future__ import annotations

from typing import Final

import msgspec

from ..billing.request_bill import RequestBill
from ..compaction import Context, Summary, by_rule_of_thumb, is_summarised, media_weight
from ..conversation.answer import AnswerBuilder
from ..conversation.validity import check
from ..errors import ModelError, ModelProtocolError
from ..events import ContextReduced
from ..messages import Message
from ..models.base import Model, ModelRequest
from ..tools.current_run import current_run
from ..usage.ledger import HowItEnded
from .config import RunConfig, billing_terms
from .state import RunState
from .stream_timeouts import StreamWatch

_SUMMARY: Final = "context.summary"


async def fit(state: RunState, context: Context, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """What of these messages is sent to the model, by a strategy for long conversations."""
    sending = await context.fit(messages, RequestWindow(state))
    if sending is not messages:
        check(sending)
        state.events.push(ContextReduced(len(messages) - len(sending), is_summarised(sending)))
    return sending


class RequestWindow:
    """What a strategy for long conversations can do with the run that it serves (`CompactionHost`)."""

    def __init__(self, state: RunState) -> None:
        self._state: Final = state

    def weigh(self, message: Message) -> int:
        """About how many tokens a message is for the run's model."""
        estimator = self._state.config.estimator
        if estimator is None:
            return by_rule_of_thumb(message)
        return estimator.message_sizer(self._state.claim.conversation)(message) + media_weight(message)

    @property
    def summary(self) -> Summary | None:
        """The last summary of the conversation."""
        found = self._state.claim.conversation.values.get(_SUMMARY)
        return None if found is None else msgspec.json.decode(found, type=Summary)

    def keep_summary(self, summary: Summary) -> None:
        """Remember a summary, with the session where there is one."""
        written = msgspec.json.encode(summary)
        self._state.claim.conversation.values[_SUMMARY] = written
        if self._state.saving.journal is not None:
            self._state.saving.journal.set_value(_SUMMARY, written)

    async def ask(self, request: ModelRequest, model: Model | None) -> AnswerBuilder:
        """Ask a model something on the side: stoppable, and booked in the ledger. Raises a `ModelError`."""
        state, config = self._state, self._state.config
        asked = model or config.model
        terms = billing_terms(config if model is None else RunConfig(config.agent, model, drain_pool=config.drain_pool))
        builder = AnswerBuilder()
        # What it teaches about tokens is not about this conversation, so it is booked as another one.
        bill = RequestBill(state.run_id, state.spending.bill.ledger, builder, state.spending.refresh_receipt, terms)
        state.spending.side_bills.append(bill)
        await state.saving.durable()
        bill.open(request, builder, turn=state.progress.turn_number, attempt=state.progress.attempt)
        ended: HowItEnded = "hung_up"
        failure: ModelError | None = None
        try:
            await state.foreign_tasks.run(_collect(asked, request, builder, state), "model call on the side")
            ended = "completed" if builder.complete else "failed"
        except ModelError as error:
            ended, failure = "failed", error
            raise
        finally:
            builder.close()
            entry = bill.close(ended, failure)
            assert entry is not None  # it was opened above
            state.spending.book(entry)
        return builder


async def _collect(model: Model, request: ModelRequest, builder: AnswerBuilder, state: RunState) -> None:
    """Read a whole answer that is not shown to readers."""
    current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    try:
        async with (
            StreamWatch(state.config.stream_timeouts, builder, lambda: not builder.is_open) as watch,
            model.stream(request) as deltas,
        ):
            try:
                async for delta in deltas:
                    if not builder.is_open:
                        return
                    builder.add(delta)
            finally:
                watch.stop()
                state.foreign_tasks.note_closing()
    except ModelError:
        raise
    except Exception as error:
        raise ModelProtocolError(f"The model raised {type(error).__name__}: {error}.") from error
