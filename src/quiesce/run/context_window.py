"""Keeping what a run sends inside the model's window."""

from __future__ import annotations

from typing import Final

import msgspec

from ..billing.request_bill import Bill
from ..compaction import Summary, by_rule_of_thumb, is_summarised, media_weight
from ..conversation.answer import Draft
from ..conversation.sealing import check
from ..errors import ModelError, ModelProtocolError
from ..events import ContextReduced
from ..messages import Message
from ..models.base import Model, ModelRequest
from ..tools.current_run import current_run
from ..usage.ledger import HowItEnded
from .config import Setup, terms_of
from .foreign_tasks import Errands
from .state import Course

_SUMMARY: Final = "context.summary"


async def fit(course: Course) -> tuple[Message, ...]:
    """Choose what of the conversation is to be sent."""
    messages = course.current.request_messages()
    if course.setup.context is None:
        return messages
    sending = await course.setup.context.fit(messages, Window(course))
    if sending is not messages:
        check(sending)
        course.emit(ContextReduced(len(messages) - len(sending), is_summarised(sending)))
    return sending


class Window:
    """What a strategy for long conversations can do with the run that it serves (`ContextHost`)."""

    def __init__(self, course: Course) -> None:
        self._course: Final = course

    def weigh(self, message: Message) -> int:
        """About how many tokens a message is for the run's model."""
        accounts = self._course.setup.accounts
        if accounts is None:
            return by_rule_of_thumb(message)
        return accounts.weigher(self._course.conversation)(message) + media_weight(message)

    @property
    def summary(self) -> Summary | None:
        """The last summary of the conversation."""
        found = self._course.conversation.values.get(_SUMMARY)
        return None if found is None else msgspec.json.decode(found, type=Summary)

    def keep_summary(self, summary: Summary) -> None:
        """Remember a summary, with the session where there is one."""
        written = msgspec.json.encode(summary)
        self._course.conversation.values[_SUMMARY] = written
        if self._course.journal is not None:
            self._course.journal.set_value(_SUMMARY, written)

    async def ask(self, request: ModelRequest, model: Model | None) -> Draft:
        """Ask a model something on the side: stoppable, and booked in the ledger. Raises a `ModelError`."""
        course, setup = self._course, self._course.setup
        asked = model or setup.model
        terms = terms_of(setup if model is None else Setup(setup.agent, model, drains=setup.drains))
        draft = Draft()
        # What it teaches about tokens is not about this conversation, so it is booked as another one.
        bill = Bill(course.run_id, course.ledger, draft, course.refresh_receipt, terms)
        course.asides.append(bill)
        await course.durable()
        bill.open(request, draft, turn=course.turn, attempt=course.attempt)
        ended: HowItEnded = "hung_up"
        failure: ModelError | None = None
        try:
            await course.errands.attend(_collect(asked, request, draft, course.errands), "model call on the side")
            ended = "completed" if draft.complete else "failed"
        except ModelError as error:
            ended, failure = "failed", error
            raise
        finally:
            draft.close()
            course.book(bill.close(ended, failure))
        return draft


async def _collect(model: Model, request: ModelRequest, draft: Draft, errands: Errands) -> None:
    """Take a whole answer, for nobody to read."""
    current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    try:
        async with model.stream(request) as deltas:
            try:
                async for delta in deltas:
                    if not draft.is_open:
                        return
                    draft.add(delta)
            finally:
                errands.note_closing()
    except ModelError:
        raise
    except Exception as error:
        raise ModelProtocolError(f"The model raised {type(error).__name__}: {error}.") from error
