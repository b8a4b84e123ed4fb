"""The loop: one short function per phase. Each returns the phase that follows, or None when the run is to settle.

    waiting -> created -> turn_start -> calling/streaming -> answered -> acting -> turn_end -> turn_start ...
                                          |        ^
                                          v        |
                                         backing_off

A stop that a phase obeys is seen at the head of `run_phases()`, before any phase begins; one that comes while a phase
waits cancels the wait, through the scope around `run_phases()`. Neither leaves anything half done, because what a phase
has achieved is written to `RunState` in the same step in which it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..cancellation.raised import EndedElsewhere, is_own_error
from ..conversation.answer import AnswerBuilder
from ..errors import (
    ConnectionFailed,
    EmptyAnswer,
    GuardrailTripped,
    ModelError,
    ModelProtocolError,
    OutputInvalid,
    StreamBroken,
)
from ..events import (
    Delta,
    MessageAdded,
    ModelCallStarted,
    OutputRejected,
    RetryScheduled,
    RunPaused,
    RunResumed,
    RunStarted,
    TurnStarted,
)
from ..hooks import AfterModelCall, BeforeModelCall, BeforeRun, OnMessage
from ..messages import AssistantMessage, CutNote, Message, Outcome
from ..middleware.base import around_model_calls
from ..middleware.guardrails import guardrail_note
from ..models.base import ModelRequest
from ..phases import PAUSES, Phase
from ..tools.current_run import current_run
from .context_window import fit
from .events.fanout import CHECKPOINT_EVERY
from .final_answer import finish_with_answer, is_paused, output_feedback, parse_output
from .handoff import complete_handoff
from .instructions import evaluated, has_functions, static_text
from .limit_checks import (
    build_meter,
    count,
    finish_last_answer,
    may_begin_turn,
    within_limits,
)
from .output import OutputMismatch
from .pending_answers import announce_answers
from .requests import build_request, read_through
from .start import begin
from .state import RunState
from .stream_timeouts import StreamWatch

if TYPE_CHECKING:
    from ..sessions.journal.journal import Journal

# Stands between tool results and a message that the user sent meanwhile; nothing was cut there.
NEW_PROMPT_NOTE: Final = "(Before I go on: the user has sent a message.)"


async def run_phases(state: RunState) -> None:
    """Go from phase to phase until the run has finished or is to stop."""
    progress = state.progress
    stopped = progress.stop_wanted
    while not stopped:
        if progress.pause.wanted and progress.phase in PAUSES and not progress.work_token.cancelled:
            await pause(state)
            stopped = progress.stop_wanted
            continue
        following = await PHASES[progress.phase](state)
        if following is None:
            return
        stopped = progress.enter(following)


async def pause(state: RunState) -> None:
    """Wait until `resume()` or a stop."""
    state.events.push(RunPaused())
    await state.progress.pause.wait(state.progress.work_token)
    state.events.push(RunResumed())


async def wait_for_conversation(state: RunState) -> Phase | None:
    """Wait until earlier runs have released the conversation and its store has opened it."""
    await asyncio.wait((state.claim.granted,))
    if state.claim.conversation.must_be_opened:
        journal = state.saving.open(state)
        await open_session(journal)
        if not journal.opened:  # another run has sent its prompt, or a newer prompt has stopped it
            if journal.sent_in is not None:
                state.progress.finish("steered")
            return None
    begin(state)
    return Phase.CREATED


async def announce_start(state: RunState) -> Phase | None:
    """Announce the prompt, which is in the conversation already. A turn with pending approvals goes on where it was."""
    state.events.push(RunStarted(state.run_id, state.config.agent, state.claim.context.task))
    waited = state.claim.waiting_turn
    if waited is not None:
        announce_answers(state, waited.interrupts, state.claim.input.answers or {})
    if state.claim.prompt is not None:
        await announce(state, state.claim.prompt)
    if BeforeRun in state.config.hooks.wanted:
        await state.call_hooks(BeforeRun(state.claim.context, state.token, state.claim.prompt))
    return Phase.TURN_START if state.turn.view.batch is None else Phase.ACTING


async def open_session(journal: Journal) -> None:
    """Wait until the session is ours. Raises a `StoreError` when it cannot be."""
    await asyncio.wait((journal.opening,))
    ended = None if journal.opening.cancelled() else journal.opening.exception()
    if ended is not None:  # Ctrl-C: any other error is in `journal.error`
        raise EndedElsewhere(ended)
    if journal.error is not None:
        raise journal.error


async def start_turn(state: RunState) -> Phase | None:
    """One more turn, if the limits allow it."""
    if not may_begin_turn(state):
        return None
    state.progress.turn_number += 1
    state.progress.attempt = 0
    state.events.push(TurnStarted(state.progress.turn_number))
    return Phase.CALLING


async def call_model(state: RunState) -> Phase | None:
    """Send the conversation and read the answer."""
    state.progress.attempt += 1
    messages = state.turn.request_messages()
    if state.config.context is not None:
        messages = await fit(state, state.config.context, messages)
    instructions = await current_instructions(state)
    builder = state.turn.begin_answer()
    request = build_request(state, messages, instructions)
    if BeforeModelCall in state.config.hooks.wanted:
        await state.call_hooks(BeforeModelCall(state.claim.context, state.token, request, state.progress.attempt))
    if state.family.lineage[-1].saving.journal is not None:
        await state.save_progress()
    if state.progress.work_token.stop_asked and state.progress.stop_wanted:
        return None
    try:
        if reads_in_own_task(state):
            await answer_to(state, builder, request)
        else:
            reading = answer_to(state, builder, request)
            await state.foreign_tasks.run(reading, "model stream", state.spending.adopt_stream)
        if not builder.complete and state.progress.stop_wanted:
            return None
        complete_answer(state, builder)
    except ModelError as error:
        return None if state.progress.stop_wanted else retry_or_raise(state, error)  # the stop came first, or with it
    except GuardrailTripped as tripped:
        return stop_for_guardrail(state, builder, tripped)
    if state.spending.bill.terms.estimator.waits_for_price:
        await state.spending.bill.terms.estimator.price_known()
    state.spending.close_entry("completed")
    return Phase.ANSWERED


def reads_in_own_task(state: RunState) -> bool:
    """Whether the run reads the answer itself: a stop of that waits for nothing, and nothing goes on after it."""
    config, policy = state.config, state.spending.bill.terms.policy
    return getattr(config.model, "cancels_at_once", False) and policy.action != "drain" and not config.middleware


def answer_to(state: RunState, builder: AnswerBuilder, request: ModelRequest) -> Coroutine[Any, Any, None]:
    """What reads the answer to a request: of the model itself, or through middleware, which sends requests itself."""
    through = around_model_calls(state.config.middleware) if state.config.middleware else ()
    if through:
        return read_through(state, builder, request, through)
    return read_answer(state, builder, request)


def stop_for_guardrail(state: RunState, builder: AnswerBuilder, tripped: GuardrailTripped) -> None:
    """Stop the run. The note in the conversation says why, and what readers have seen of an answer that is gone."""
    state.progress.stop_note = guardrail_note(tripped, len(builder.text()))
    if not tripped.keep:
        state.turn.begin()
    state.spending.close_entry("hung_up")
    state.token.cancel(tripped.reason, source="guardrail")


async def read_answer(state: RunState, builder: AnswerBuilder, request: ModelRequest) -> None:
    """Send the request and take the answer. Leaving the context hangs up, which is not to be cut once it has begun.

    The request is on the bill from here on: a task that is cancelled before its first step sends none.
    """
    attempt = state.progress.turn_number, state.progress.attempt
    state.spending.bill.open(request, builder, turn=attempt[0], attempt=attempt[1])
    state.events.push(ModelCallStarted(*attempt, state.config.model.name))
    caller = current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    token, timeouts = state.progress.work_token, state.config.stream_timeouts
    try:
        async with (
            StreamWatch(timeouts, builder, lambda: token.stop_now or not builder.is_open, state.stop_because) as watch,
            state.config.model.stream(request) as deltas,
        ):
            try:
                await read_deltas(state, builder, deltas, watch)
            finally:
                watch.stop()
                state.foreign_tasks.note_closing()
    except ModelError:
        raise
    except BaseException as error:
        if not is_own_error(error):
            raise
        raise ModelProtocolError(f"The model raised {type(error).__name__}: {str(error).rstrip('.')}.") from error
    finally:
        with suppress(ValueError):  # the loop was closed, and this is no step of the task
            current_run.reset(caller)


async def read_deltas(
    state: RunState, builder: AnswerBuilder, deltas: AsyncIterator[Delta], watch: StreamWatch
) -> None:
    """Take the model's deltas: into the builder first, then to the readers."""
    state.spending.bill.prepare()  # not before: the request is sent, and need not share the interpreter
    token, broadcast, meter = state.progress.work_token, state.events, await build_meter(state, state.spending.bill)
    idle = True
    async for delta in deltas:
        if token.stop_now or not builder.is_open:
            watch.stop()
            await hang_up(state, delta, deltas)
            return
        if idle:
            idle = False
            state.progress.enter(Phase.STREAMING)
        broadcast.push(builder.add(delta))
        if meter is not None:
            meter.update(builder)
        if broadcast.since_checkpoint >= CHECKPOINT_EVERY:
            watch.paused = True  # a reader that is slow is no gap in the stream
            await broadcast.checkpoint()
            watch.paused = False


async def hang_up(state: RunState, delta: Delta, deltas: AsyncIterator[Delta]) -> None:
    """A stop has come: readers do not get this delta. Hang up, or read on in the background to learn the usage."""
    drain = state.spending.drain()
    if drain is None:
        state.spending.bill.count_unseen(delta)
    else:
        with suppress(Exception):  # the answer is cut already: a stream that breaks now changes nothing
            await drain.read(delta, deltas)


def complete_answer(state: RunState, builder: AnswerBuilder) -> None:
    """Take the answer as the turn's. Raises a `ModelError` unless it is complete and not empty."""
    if not builder.complete:
        if builder.has_content:
            raise StreamBroken("The model's stream ended in the middle of its answer.")
        raise ConnectionFailed("The model's stream ended before its answer.")
    if state.turn.end_answer() is None and builder.ended != "max_tokens":
        raise EmptyAnswer(f"The model answered with nothing{builder.detail and f': {builder.detail}'}.")


def retry_or_raise(state: RunState, error: ModelError) -> Phase:
    """Try again later, unless readers have text of the answer: then the text stays and the run fails.

    A connection that breaks after the answer is complete has cost nothing.
    """
    builder = state.turn.view.builder
    if builder is not None and builder.complete and error.retryable and state.turn.end_answer() is not None:
        state.spending.close_entry("completed")  # the connection broke after the last word: nothing is missing
        return Phase.ANSWERED
    state.spending.close_entry("failed", error)
    if builder is not None and builder.has_content and not builder.complete:
        if isinstance(error, StreamBroken) or not error.retryable:
            raise error
        raise StreamBroken(f"The answer was cut off: {error.what}", request_id=error.request_id) from error
    delay = state.config.retry.delay(error, state.progress.attempt)
    if delay is None:
        raise error
    state.turn.begin()  # readers got nothing of the answer
    state.progress.retry_delay = delay
    state.events.push(RetryScheduled(state.progress.attempt, delay, str(error)))
    return Phase.BACKING_OFF


async def back_off(state: RunState) -> Phase | None:
    """Wait before the next try."""
    await asyncio.sleep(state.progress.retry_delay)
    return Phase.CALLING


async def judge_answer(state: RunState) -> Phase | None:
    """Run the tools that the answer asks for; without any, the answer is the end."""
    answer = state.turn.view.answer
    if answer is not None and AfterModelCall in state.config.hooks.wanted:
        await state.call_hooks(AfterModelCall(state.claim.context, state.token, answer))
    if state.spending.last_answer:
        finish_last_answer(state)
        return None
    calls = () if answer is None else answer.tool_calls
    if not calls:
        return Phase.TURN_END if is_paused(state) else judge_final_answer(state)
    if within_limits(state, tool_calls=len(calls)):
        return end_step(state) if state.config.one_step else Phase.ACTING
    if state.spending.reached is None or state.config.on_limit == "stop":
        return None
    if state.config.on_limit == "ask":
        state.progress.finish("interrupt")
        return None
    state.tools.begin_batch(calls)  # they are answered as not run, and the last answer follows
    return Phase.TURN_END


def judge_final_answer(state: RunState) -> Phase | None:
    """Finish, or go on: when the answer must fit a type and does not, or when prompts are queued."""
    try:
        output = parse_output(state)
        while not state.prompts.inbox.close_if_empty():
            if state.prompts.take():
                return Phase.TURN_END
        finish_with_answer(state, output)
    except OutputMismatch as mismatch:
        state.progress.output_tries += 1
        if state.progress.output_tries > state.config.output_retries:
            raise OutputInvalid(f"The answer does not fit output_type: {mismatch}.") from None
        state.events.push(OutputRejected(str(mismatch), state.progress.output_tries))
        return Phase.TURN_END
    return None


async def act(state: RunState) -> Phase | None:
    """Run the tools."""
    batch, answer = state.turn.view.batch, state.turn.view.answer
    if batch is None:
        assert answer is not None
        batch = state.tools.begin_batch(answer.tool_calls)
    elif state.spending.resumed is not None:  # the calls of an earlier run, which its limit did not allow
        count(state, tool_calls=sum(record.result is None for record in batch.calls))
    is_over = all(record.result is not None for record in batch.calls)
    await batch.run()
    if not batch.suspended:
        return end_step(state) if state.config.one_step and not is_over else Phase.TURN_END
    # Otherwise the stop, or the urgent prompt, comes first.
    if not state.progress.work_token.cancelled and not state.prompts.inbox.urgent:
        state.progress.finish("interrupt")
    return None


def end_step(state: RunState) -> None:
    """End a run of one step. Its turn is pending, and another run goes on with it."""
    state.progress.finish("interrupt")


async def end_turn(state: RunState) -> Phase | None:
    """Put the turn into the conversation, and what follows it: feedback on the output, or queued prompts."""
    if state.turn.view.batch is None and is_paused(state):
        state.turn.go_on_after_pause()
        return Phase.TURN_START
    if state.turn.view.batch is not None:
        state.turn.view.batch.announce()
    turn = state.turn.view.turn(unsettled=Outcome.NEVER_STARTED)
    if turn:  # an answer with nothing in it leaves nothing to comment on: it is asked for again, as it was
        turn = (*turn, *what_follows(state))
    state.turn.commit(turn)  # nothing can come in between this and what_follows()
    if state.turn.handoff is not None:
        complete_handoff(state, state.turn.handoff)
    for message in turn:
        await announce(state, message)
    state.claim.conversation.check_state()
    return Phase.TURN_START


def what_follows(state: RunState) -> tuple[Message, ...]:
    """The user message between this turn and the next, if any. After tools a note precedes it: roles must alternate."""
    feedback = output_feedback(state) if state.turn.view.batch is None else None
    if feedback is not None:
        return (feedback,)
    if not state.prompts.take():
        return ()
    queued = state.prompts.next_message(state.saving.journal)
    return (queued,) if state.turn.view.batch is None else (AssistantMessage((CutNote(NEW_PROMPT_NOTE),)), queued)


async def after_steering(state: RunState) -> Phase | None:
    """Call the hooks for the cut answer and the steering prompt, which are in the conversation already."""
    while state.prompts.unannounced:
        message, *rest = state.prompts.unannounced
        state.prompts.unannounced = tuple(rest)
        if OnMessage in state.config.hooks.wanted:
            await state.call_hooks(OnMessage(state.claim.context, state.token, message))
    return Phase.TURN_START


async def announce(state: RunState, message: Message) -> None:
    """Tell readers and hooks about a message that is in the conversation now."""
    state.events.push(MessageAdded(message))
    if OnMessage in state.config.hooks.wanted:
        await state.call_hooks(OnMessage(state.claim.context, state.token, message))


async def current_instructions(state: RunState) -> str | None:
    """The instructions for the next request. Functions are the user's code: a stop does not wait for them."""
    instructions, context = state.config.instructions, state.claim.context
    if not instructions:
        return None
    if not has_functions(instructions):
        return static_text(instructions)
    return await state.foreign_tasks.run(evaluated(instructions, context), "instructions")


PHASES: Final[dict[Phase, Callable[[RunState], Awaitable[Phase | None]]]] = {
    Phase.WAITING: wait_for_conversation,
    Phase.CREATED: announce_start,
    Phase.TURN_START: start_turn,
    Phase.CALLING: call_model,
    Phase.BACKING_OFF: back_off,
    Phase.ANSWERED: judge_answer,
    Phase.ACTING: act,
    Phase.TURN_END: end_turn,
    Phase.STEERING: after_steering,
}
