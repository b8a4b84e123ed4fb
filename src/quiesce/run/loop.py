"""The loop: one short function per phase. Each returns the phase that follows, or None when the run is to settle.

    waiting -> created -> turn_start -> calling/streaming -> answered -> acting -> turn_end -> turn_start ...
                                          |        ^
                                          v        |
                                         backing_off

A stop that a phase obeys is seen at the head of `play()`, before any phase begins; one that comes while a phase is
waiting cancels the wait, through the scope that `play()` runs in. Neither leaves anything half done, because what a
phase has achieved is written down, in `Course`, in the same step in which it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from ..conversation.answer import Draft
from ..errors import ConnectionFailed, EmptyAnswer, ModelError, ModelProtocolError, OutputInvalid, StreamBroken
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
from ..limits import AnswerMeter, Meter, SharedMeter
from ..messages import AssistantMessage, CutNote, Message, Text, UserMessage
from ..models.base import ModelRequest
from ..phases import PAUSES, Phase
from ..sessions.journal.journal import Journal
from ..tools.current_run import current_run
from .context_window import fit
from .events.fanout import BREATH
from .handoff import take_over
from .output import OutputMismatch
from .start import take_floor
from .state import Course

# Between the results of tools and a message that the person sent meanwhile. Nothing was cut there.
SPEAKS_NEXT: Final = "(Before I go on: the user has sent a message.)"


async def play(course: Course) -> None:
    """Go from phase to phase until the run has finished or is to stop."""
    while not course.stop_wanted:
        if course.pausing.wanted and course.phase in PAUSES and not course.leg.cancelled:
            await pause(course)
            continue
        following = await PHASES[course.phase](course)
        if following is None:
            return
        if following is not course.phase:
            course.enter(following)


async def pause(course: Course) -> None:
    """Wait until somebody says that the run may go on, or is to stop."""
    course.emit(RunPaused())
    await course.pausing.wait(course.leg)
    course.emit(RunResumed())


async def wait_for_floor(course: Course) -> Phase | None:
    """Wait until the runs that came before have left the conversation, and until its store has opened it."""
    await asyncio.wait((course.floor,))
    if course.conversation.must_be_opened:
        journal = course.open_journal()
        await open_session(journal)
        if not journal.opened:  # its prompt was said in a run that had the session, or a newer one has stopped it
            if journal.said_in is not None:
                course.finish("steered")
            return None
    take_floor(course)
    return Phase.CREATED


async def begin(course: Course) -> Phase | None:
    """The prompt is in the conversation already; say so. A turn that waited for a person goes on where it was."""
    course.emit(RunStarted(course.run_id, course.setup.agent))
    if course.prompt is not None:
        await announce(course, course.prompt)
    await course.call_hooks(BeforeRun(course.run_id, course.token, course.prompt))
    return Phase.TURN_START if course.current.batch is None else Phase.ACTING


async def open_session(journal: Journal) -> None:
    """Wait until the session is ours. Raises a `StoreError` when it cannot be."""
    await asyncio.wait((journal.opening,))
    if journal.error is not None:
        raise journal.error


async def start_turn(course: Course) -> Phase | None:
    """One more turn, if the limits allow it."""
    if not within_limits(course, turns=1):
        return None
    course.turn += 1
    course.attempt = 0
    course.emit(TurnStarted(course.turn))
    return Phase.CALLING


def within_limits(course: Course, *, turns: int = 0, tool_calls: int = 0) -> bool:
    """Count against the limits of this run and of those above it, which all that is below them shares.

    Whether they allow it. The run whose limit is reached is the one that is stopped, and with it everything below.
    """
    for each in course.lineage():
        limits, tally = each.setup.limits, each.tally
        for what, limit, wanted in (
            ("turns", limits.turns, tally.turns + turns if turns else 0),
            ("tool calls", limits.tool_calls, tally.tool_calls + tool_calls if tool_calls else 0),
        ):
            if limit is not None and wanted > limit:
                shared = "" if each is course else ", with those of the runs below"
                each.token.cancel(f"The limit of {limit} {what} is reached{shared}", source="budget")
                return False
    count(course, turns=turns, tool_calls=tool_calls)
    return True


def count(course: Course, *, turns: int = 0, tool_calls: int = 0) -> None:
    """Write down what was begun, for this run and those above it."""
    for each in course.lineage():
        each.tally.turns += turns
        each.tally.tool_calls += tool_calls


async def call_model(course: Course) -> Phase | None:
    """Send the conversation and listen to the answer."""
    course.attempt += 1
    sending = await fit(course)
    draft = course.current.begin_answer()
    request = build_request(course, sending)
    await course.call_hooks(BeforeModelCall(course.run_id, course.token, request, course.attempt))
    await course.durable()
    if course.stop_wanted:
        return None
    course.open_entry(request)
    course.emit(ModelCallStarted(course.turn, course.attempt, course.setup.model.name))
    try:
        await course.errands.attend(listen(course, draft, request), "model stream", course.adopt_stream)
        if course.stop_wanted and not draft.complete:
            return None
        check_answer(draft)
    except ModelError as error:
        return retry_or_raise(course, error)
    course.close_entry("completed")
    return Phase.ANSWERED


async def listen(course: Course, draft: Draft, request: ModelRequest) -> None:
    """Send the request and take the answer. Leaving the context hangs up, which is not to be cut once it has begun."""
    current_run.set(None)  # a connection that is kept for later keeps its context, and would keep the run
    try:
        async with course.setup.model.stream(request) as deltas:
            try:
                await take(course, draft, deltas)
            finally:
                course.errands.note_closing()
    except ModelError:
        raise
    except Exception as error:
        raise ModelProtocolError(f"The model raised {type(error).__name__}: {error}.") from error


async def take(course: Course, draft: Draft, deltas: AsyncIterator[Delta]) -> None:
    """Take the model's deltas: into the draft first, then to the readers."""
    token, broadcast, meter = course.leg, course.broadcast, build_meter(course)
    idle = True
    async for delta in deltas:
        if token.stop_now or not draft.is_open:
            await leave(course, delta, deltas)
            return
        if idle:
            idle = False
            course.enter(Phase.STREAMING)
        broadcast.push(draft.add(delta))
        if meter is not None:
            meter.take(draft)
        if broadcast.unbreathed >= BREATH:
            await broadcast.breathe()


async def leave(course: Course, delta: Delta, deltas: AsyncIterator[Delta]) -> None:
    """A stop has come: nobody is shown this delta. Hang up, or read on in the background where that tells the bill."""
    tail = course.tail()
    if tail is None:
        course.bill.overhear(delta)
    else:
        with suppress(Exception):  # a stream that breaks while nobody listens is no news
            await tail.read(delta, deltas)


def check_answer(draft: Draft) -> None:
    """Raises a `ModelError` unless the answer is complete and says something."""
    if not draft.complete:
        if draft.has_content:
            raise StreamBroken("The model's stream ended in the middle of its answer.")
        raise ConnectionFailed("The model's stream ended before its answer.")
    if not draft.content() and draft.ended != "max_tokens":
        raise EmptyAnswer("The model answered with nothing.")


def retry_or_raise(course: Course, error: ModelError) -> Phase:
    """Try again later, unless people have begun to read the answer: then what they read stays, and the run fails.

    A connection that breaks after the answer is complete has cost nothing.
    """
    draft = course.current.draft
    if draft is not None and draft.complete and draft.content() and error.retryable:
        course.close_entry("completed")  # the connection broke after the last word: nothing is missing
        return Phase.ANSWERED
    course.close_entry("failed", error)
    if draft is not None and draft.has_content and not draft.complete:
        if isinstance(error, StreamBroken) or not error.retryable:
            raise error
        raise StreamBroken(f"The answer was cut off: {error.what}", request_id=error.request_id) from error
    delay = course.setup.retry.delay(error, course.attempt)
    if delay is None:
        raise error
    course.current.forget_answer()
    course.retry_delay = delay
    course.emit(RetryScheduled(course.attempt, delay, str(error)))
    return Phase.BACKING_OFF


async def back_off(course: Course) -> Phase | None:
    """Wait before the next try."""
    await asyncio.sleep(course.retry_delay)
    return Phase.CALLING


async def weigh_answer(course: Course) -> Phase | None:
    """Run the tools that the answer asks for; without any, the answer is the end."""
    answer = course.current.answer
    if answer is not None:
        await course.call_hooks(AfterModelCall(course.run_id, course.token, answer))
    if answer is None or not answer.tool_calls:
        return weigh_final_answer(course)
    return Phase.ACTING if within_limits(course, tool_calls=len(answer.tool_calls)) else None


def weigh_final_answer(course: Course) -> Phase | None:
    """Finish, or go on: when the answer must fit a type and does not, or when there is more to be said."""
    try:
        parse_output(course)
        while not course.inbox.close_if_empty():
            if course.collect():
                return Phase.TURN_END
        finish(course)
    except OutputMismatch as mismatch:
        course.output_tries += 1
        if course.output_tries > course.setup.output_retries:
            raise OutputInvalid(f"The answer does not fit output_type: {mismatch}.") from None
        course.emit(OutputRejected(str(mismatch), course.output_tries))
        return Phase.TURN_END
    return None


def finish(course: Course) -> None:
    """The answer is the end of the run. Raises `OutputMismatch` when it does not fit the wanted type."""
    assert course.current.draft is not None
    reason = course.current.draft.ended
    assert reason is not None
    # A model that says "tool_use" and asks for no tool has nothing left to do either.
    course.finish("end_turn" if reason == "tool_use" else reason, parse_output(course))


def parse_output(course: Course) -> object:
    """The structured output, or None when none is wanted. Raises `OutputMismatch`."""
    if course.setup.output is None or course.current.draft is None:
        return None
    return course.setup.output.parse(course.current.draft.text())


async def act(course: Course) -> Phase | None:
    """Run the tools."""
    answer = course.current.answer
    assert answer is not None
    batch = course.current.batch
    if batch is None:
        batch = course.begin_batch(answer.tool_calls)
    else:  # a turn of an earlier run, which counted it there
        count(course, tool_calls=sum(record.result is None for record in batch.records))
    await batch.run()
    if not batch.suspended:
        return Phase.TURN_END
    if not course.leg.cancelled and not course.inbox.urgent:  # else the stop, or what was said, comes first
        course.finish("interrupt")
    return None


async def end_turn(course: Course) -> Phase | None:
    """Put the turn into the conversation, and what follows it: what was wrong with the answer, or what was queued."""
    if course.current.batch is not None:
        course.current.batch.announce()
    turn = course.current.so_far()
    if turn:  # an answer with nothing in it leaves nothing to comment on: it is asked for again, as it was
        turn = (*turn, *what_follows(course))
    course.current.commit(turn)  # nothing can come in between this and what_follows()
    take_over(course)
    for message in turn:
        await announce(course, message)
    return Phase.TURN_START


def what_follows(course: Course) -> tuple[Message, ...]:
    """What is said after this turn, before the next one. After tools, a word in between, for roles must alternate."""
    feedback = output_feedback(course) if course.current.batch is None else None
    if feedback is not None:
        return (feedback,)
    if not course.collect():
        return ()
    queued = course.next_words()
    return (queued,) if course.current.batch is None else (AssistantMessage((CutNote(SPEAKS_NEXT),)), queued)


def output_feedback(course: Course) -> UserMessage | None:
    """What the model is told about an answer that did not fit."""
    try:
        parse_output(course)
    except OutputMismatch as mismatch:
        return UserMessage(
            (Text(f"That answer is not valid: {mismatch}. Answer again, with JSON that fits the schema."),)
        )
    return None


async def after_steering(course: Course) -> Phase | None:
    """What was cut and what is said instead are in the conversation; let the hooks know."""
    while course.unannounced:
        message, *rest = course.unannounced
        course.unannounced = tuple(rest)
        await course.call_hooks(OnMessage(course.run_id, course.token, message))
    return Phase.TURN_START


async def announce(course: Course, message: Message) -> None:
    """Tell readers and hooks about a message that is in the conversation now."""
    course.emit(MessageAdded(message))
    await course.call_hooks(OnMessage(course.run_id, course.token, message))


def build_request(course: Course, sending: tuple[Message, ...]) -> ModelRequest:
    """What the model is sent."""
    setup = course.setup
    return ModelRequest(
        messages=sending,
        instructions=setup.instructions,
        tools=tuple(tool.spec for tool in setup.tools.values()),
        output_schema=None if setup.output is None else setup.output.schema,
        settings=setup.settings,
    )


def build_meter(course: Course) -> AnswerMeter | None:
    """What counts this answer while it grows: for a limit of this run, or of one above it, that can be reached inside
    it, or because its vocabulary is slow.
    """
    limits, bill = course.setup.limits, course.bill
    price = bill.accounts.price
    meters: list[Meter | SharedMeter] = []
    if limits.inside_answers:
        meters.append(Meter(limits, bill.spent, price, course.token))
    for above in course.lineage():
        if above is not course and above.setup.limits.inside_answers:
            assert bill.entry_id is not None
            meters.append(SharedMeter(above.setup.limits, above.tally, price, above.token, bill.entry_id))
    if not meters and not bill.accounts.counts_slowly:
        return None
    return AnswerMeter(meters, price, bill.tally(), bill.input_estimate())


PHASES: Final[dict[Phase, Callable[[Course], Awaitable[Phase | None]]]] = {
    Phase.WAITING: wait_for_floor,
    Phase.CREATED: begin,
    Phase.TURN_START: start_turn,
    Phase.CALLING: call_model,
    Phase.BACKING_OFF: back_off,
    Phase.ANSWERED: weigh_answer,
    Phase.ACTING: act,
    Phase.TURN_END: end_turn,
    Phase.STEERING: after_steering,
}
