"""The requests of one model call: built from the run, and sent through its middleware.

Without middleware the loop sends the one request itself (`call_model`). With middleware each `next(call)` is a request
here, with its own ledger entry, events and bill; what it received is counted apart from the answer that the middleware
makes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from ..billing.meter import Meter
from ..cancellation.raised import is_own_error
from ..conversation.answer import AnswerBuilder
from ..conversation.validity import check
from ..errors import (
    ConnectionFailed,
    GuardrailTripped,
    InvalidConversation,
    MiddlewareFailed,
    ModelError,
    ModelProtocolError,
    RequestRejected,
    StreamBroken,
)
from ..events import Delta, ModelCallStarted
from ..messages import Message
from ..middleware.base import Middleware, ModelCall, around_model_calls, chain_model_calls
from ..models.base import Model, ModelRequest
from ..phases import Phase
from ..tools.current_run import current_run
from .events.fanout import CHECKPOINT_EVERY
from .handoff import cost_refusal
from .limit_checks import build_meter, last_answer_note
from .spending import MiddlewareRequest
from .stream_timeouts import StreamWatch

if TYPE_CHECKING:
    from .state import RunState


def build_request(state: RunState, sending: tuple[Message, ...], instructions: str | None) -> ModelRequest:
    """What the model is sent. A tool that must be called is called in the first turn: later it would never end.

    The first turn of a run that a person has answered was the one that asked.
    """
    config, choice, last = state.config, state.config.tool_choice, state.spending.last_answer
    if (state.progress.turn_number > 1 or state.claim.waiting_turn is not None) and choice not in ("auto", "none"):
        choice = None
    return ModelRequest(
        messages=sending,
        instructions=last_answer_note(state, instructions) if last else instructions,
        tools=() if last else tuple(tool.spec for tool in state.tools.available.values()),
        server_tools=() if last else config.server_tools,
        output_schema=None if config.output is None else config.output.schema,
        settings=config.settings,
        tool_choice=None if last else choice,
    )


async def read_through(
    state: RunState, builder: AnswerBuilder, request: ModelRequest, middleware: tuple[Middleware[Any], ...]
) -> None:
    """Take the answer that the middleware gives: its own, or that of the requests that it sends.

    Once the run is to stop, nothing that the middleware raises matters any more.
    """
    current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    sender = RequestSender(state, builder, request)
    call: ModelCall[Any] = ModelCall(
        state.claim.context,
        state.config.model,
        request,
        state.progress.turn_number,
        state.progress.attempt,
        sender.emit,
    )
    try:
        async with chain_model_calls(middleware, sender.send)(call) as deltas:
            await _read(state, builder, deltas)
    except (ModelError, GuardrailTripped):
        if sender.may_send:
            raise
    except BaseException as error:
        if not is_own_error(error):
            raise
        if sender.may_send:
            raise MiddlewareFailed(f"Middleware raised {type(error).__name__}: {error}.") from error


async def ask_on_the_side(state: RunState, builder: AnswerBuilder, request: ModelRequest, model: Model) -> None:
    """Read the answer to a request whose answer is not part of the conversation: a summary. Raises a `ModelError`."""
    current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    progress, sender = state.progress, SideRequestSender(state, builder, request)
    middleware = around_model_calls(state.config.middleware)
    call: ModelCall[Any] = ModelCall(
        state.claim.context, model, request, progress.turn_number, progress.attempt, sender.emit
    )
    try:
        async with chain_model_calls(middleware, sender.send)(call) as deltas:
            async for delta in deltas:
                if not sender.may_send:
                    return
                builder.add(delta)
    except (ModelError, GuardrailTripped):
        raise
    except Exception as error:
        raise MiddlewareFailed(f"Middleware raised {type(error).__name__}: {error}.") from error


async def _read(state: RunState, builder: AnswerBuilder, deltas: AsyncIterator[Delta]) -> None:
    """Take deltas: into the builder first, then to the readers. A stop leaves the rest."""
    token, broadcast = state.progress.work_token, state.events
    idle = True
    async for delta in deltas:
        if token.stop_now or not builder.is_open:
            return
        if idle:
            idle = False
            state.progress.enter(Phase.STREAMING)
        broadcast.push(builder.add(delta))
        if broadcast.since_checkpoint >= CHECKPOINT_EVERY:
            await broadcast.checkpoint()


class RequestSender:
    """Sends the requests of one model call, as long as the run waits for its answer."""

    def __init__(self, state: RunState, builder: AnswerBuilder, original: ModelRequest) -> None:
        self._state: Final = state
        self._builder: Final = builder
        self._original: Final = original

    @property
    def may_send(self) -> bool:
        """Whether the run still waits for this answer, and nothing has asked it to stop."""
        progress, view = self._state.progress, self._state.turn.view
        waiting = progress.phase in (Phase.CALLING, Phase.STREAMING)
        return waiting and view.builder is self._builder and self._builder.is_open and not progress.stop_wanted

    def emit(self, event: Any) -> None:
        """Tell the readers about this call, while it lasts."""
        if self.may_send:
            self._state.events.push(event)

    @asynccontextmanager
    async def send(self, call: ModelCall[Any]) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Send one request. Raises a `ModelError`; leaving the context hangs up."""
        state = self._state
        self._check(call)
        await state.save_progress()
        if not self.may_send:
            raise RequestRejected("The run is not waiting for an answer any more.", kept="Nothing was sent.")
        sent = self._open(call)
        watch = StreamWatch(state.config.stream_timeouts, sent.answer, lambda: not self.may_send, state.stop_because)
        stream = RequestStream(state, self._builder, sent, watch)
        try:
            async with watch, call.model.stream(call.request) as deltas:
                try:
                    sent.bill.prepare()
                    yield stream.of(deltas, await build_meter(state, sent.bill))
                finally:
                    watch.stop()
                    state.foreign_tasks.note_closing()
        except ModelError as error:
            sent.error = sent.error or error
            raise
        except BaseException as error:
            if not stream.entered and is_own_error(error):
                sent.error = _as_model_error(error)
                raise sent.error from error
            raise
        finally:
            state.foreign_tasks.note_closed()
            if self.may_send:  # else the run closes the entry when it settles
                state.spending.close_sent(sent)

    def _check(self, call: ModelCall[Any]) -> None:
        """Raises `RequestRejected` for what cannot be sent, or not be paid from what is left of the limits."""
        if call.request.messages is not self._original.messages:
            try:
                check(call.request.messages)
            except InvalidConversation as error:
                raise RequestRejected(f"Middleware made a request that no provider accepts: {error}") from None
        if call.model is not self._state.config.model:
            refusal = cost_refusal(self._state, self._state.spending.config_for(call.model))
            if refusal is not None:
                raise RequestRejected(f"The run's cost limit {refusal}.", kept="Nothing was sent.")

    def _open(self, call: ModelCall[Any]) -> MiddlewareRequest:
        """Write down that a request is about to be sent, and tell the readers."""
        state, request, original = self._state, call.request, self._original
        same = (
            request.messages is original.messages
            and request.tools == original.tools
            and (request.instructions, request.output_schema) == (original.instructions, original.output_schema)
        )
        sent = state.spending.send(call.model, request, learn=same)
        state.events.push(ModelCallStarted(state.progress.turn_number, state.progress.attempt, call.model.name))
        return sent


class SideRequestSender(RequestSender):
    """Sends a request whose answer is not the one that the run waits for."""

    @property
    def may_send(self) -> bool:
        """Whether nothing has asked the run to stop."""
        return self._builder.is_open and not self._state.progress.stop_wanted


class RequestStream:
    """The deltas of one request: counted for its bill, then passed on to the middleware."""

    def __init__(self, state: RunState, builder: AnswerBuilder, sent: MiddlewareRequest, watch: StreamWatch) -> None:
        self._state: Final = state
        self._builder: Final = builder
        self._sent: Final = sent
        self._watch: Final = watch
        self._meter: Meter | None = None
        self._deltas: AsyncIterator[Delta] | None = None

    @property
    def entered(self) -> bool:
        """Whether the model has accepted the request."""
        return self._deltas is not None

    def of(self, deltas: AsyncIterator[Delta], meter: Meter | None) -> Self:
        """Read these, with a meter if there is a limit."""
        self._deltas = deltas
        self._meter = meter
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        sent, deltas = self._sent, self._deltas
        assert deltas is not None
        sent.reader = asyncio.current_task()
        self._watch.paused = False
        try:
            delta = await anext(deltas)
        except StopAsyncIteration:
            if not sent.answer.complete and not sent.hung_up:
                sent.error = _cut_off(sent.answer)
                raise sent.error from None
            raise
        except ModelError as error:
            sent.error = error
            raise
        except BaseException as error:
            if not is_own_error(error):
                raise
            sent.error = _as_model_error(error)
            raise sent.error from error
        finally:
            sent.reader = None
            self._watch.paused = True  # what the middleware does between two deltas is no gap in the stream
        if self._state.progress.work_token.stop_now or not self._builder.is_open:
            await self._hang_up(delta, deltas)
            raise StopAsyncIteration
        try:
            sent.answer.add(delta)
        except ModelError as error:
            sent.error = error
            raise
        if self._meter is not None:
            self._meter.update(sent.answer)
        return delta

    async def _hang_up(self, delta: Delta, deltas: AsyncIterator[Delta]) -> None:
        """A stop has come: the middleware does not get this delta. Hang up, or read on to learn the usage."""
        sent = self._sent
        sent.hung_up = True
        drain = self._state.spending.drain(sent.bill)
        if drain is None:
            sent.bill.count_unseen(delta)
        else:
            with suppress(Exception):  # the answer is cut already: a stream that breaks now changes nothing
                await drain.read(delta, deltas)


def _as_model_error(error: BaseException) -> ModelError:
    return ModelProtocolError(f"The model raised {type(error).__name__}: {str(error).rstrip('.')}.")


def _cut_off(answer: AnswerBuilder) -> ModelError:
    if answer.has_content:
        return StreamBroken("The model's stream ended in the middle of its answer.")
    return ConnectionFailed("The model's stream ended before its answer.")
