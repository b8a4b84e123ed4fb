"""The context window: what of a long conversation a run sends to its model."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from ..compaction import Context, Summary, by_rule_of_thumb, is_summarised, media_size
from ..conversation.answer import AnswerBuilder
from ..conversation.validity import check
from ..errors import GuardrailTripped, RequestRejected
from ..events import ContextReduced
from ..messages import Message, ToolMessage
from ..models.base import Model, ModelRequest
from ..usage.estimate.message_size import MessageSizer
from ..usage.figure import Provenance
from .requests import ask_on_the_side
from .state import RunState

_SUMMARY: Final = "context.summary"


async def fit(state: RunState, context: Context, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """What of these messages is sent to the model, by a strategy for long conversations."""
    if state.config.estimator is not None:
        await state.config.estimator.loaded()  # messages are counted in the vocabulary
    window = RequestWindow(state)
    sending = await context.fit(messages, window)
    if sending is not messages:
        check(sending)
        state.events.push(window.reduction(messages, sending))
    return sending


class RequestWindow:
    """What a strategy for long conversations can do with the run that it serves (`CompactionHost`)."""

    def __init__(self, state: RunState) -> None:
        self._state: Final = state

    def message_size(self, message: Message) -> int:
        """About how many tokens a message is for the run's model."""
        sizer = self._sizer
        return by_rule_of_thumb(message) if sizer is None else sizer(message) + media_size(message)

    @property
    def _sizer(self) -> MessageSizer | None:
        estimator = self._state.config.estimator
        return None if estimator is None else estimator.message_sizer(self._state.claim.conversation)

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

    def reduction(self, messages: tuple[Message, ...], sending: tuple[Message, ...]) -> ContextReduced:
        """What readers are told about messages that are not sent."""
        sent, known = set(map(id, sending)), set(map(id, messages))
        left_out, changed = known - sent, len(sent - known)
        sizer = self._sizer
        return ContextReduced(
            max(0, len(left_out) - changed),  # a prompt with a summary beside it is sent
            is_summarised(sending),
            sum(map(self.message_size, messages)),
            sum(map(self.message_size, sending)),
            Provenance.HEURISTIC if sizer is None else sizer.source,
        )

    async def ask(self, request: ModelRequest, model: Model | None) -> AnswerBuilder:
        """Ask a model something on the side: through the middleware, stoppable, and booked in the ledger.

        Providers refuse calls and results of tools that a request does not describe. Raises a `ModelError`.
        """
        state, builder = self._state, AnswerBuilder()
        if any(isinstance(message, ToolMessage) for message in request.messages):
            specs = tuple(tool.spec for tool in state.tools.available.values())
            request = replace(request, tools=specs, tool_choice="none" if specs else None)
        await state.saving.durable()
        asking = ask_on_the_side(state, builder, request, model or state.config.model)
        try:
            await state.foreign_tasks.run(asking, "model call on the side")
        except GuardrailTripped as tripped:
            state.token.cancel(tripped.reason, source="guardrail")
            raise RequestRejected("A guardrail has stopped the run.") from None
        finally:
            builder.close()
        return builder
