"""The floor: a run's right to speak in its conversation. It is had at once, or after the runs that came before."""

from __future__ import annotations

from contextlib import suppress

from ..conversation.continuation import GO_ON, GO_ON_FROM_END, continued
from ..errors import ConversationBusy, InterruptPending, NothingToContinue, ToolError
from ..interrupts import PendingTurn
from ..messages import AssistantMessage, Outcome, Text, UserMessage
from ..phases import Phase
from .handoff import hand_over, take_over
from .state import Course


def ask_for_floor(course: Course) -> None:
    """Take the conversation and begin. Raises `ConversationBusy`, and what `take_floor` raises."""
    conversation = course.conversation
    conversation.hold(course.run_id)
    try:
        _respect_line(course)
        if conversation.must_be_opened:
            course.floor.set_result(None)
        else:
            take_floor(course)
    except BaseException:
        conversation.release(course.run_id)
        raise


def _respect_line(course: Course) -> None:
    """Runs that came before and wait for the person's answer, as this one would, go first."""
    line = course.conversation.line
    if line and course.opening.answers is None and course.opening.on_prompt != "refuse":
        course.conversation.drop_pending(course.setup.cut_note)
        raise ConversationBusy(line[0])


def grant_floor(course: Course) -> None:
    """The conversation is this run's, after it had to wait. From any thread."""

    def grant() -> None:
        if not course.floor.done():
            course.floor.set_result(None)

    try:
        course.loop.call_soon_threadsafe(grant)
    except RuntimeError:  # the loop has closed, and the run with it
        course.conversation.release(course.run_id)


def take_floor(course: Course) -> None:
    """The conversation is this run's: begin. Raises an `InterruptError`, and then nothing is changed."""
    conversation, opening = course.conversation, course.opening
    course.first_message = len(conversation.messages)
    course.bill.accounts.recall(conversation.values)
    if opening.answers is not None:
        _take_up(course, conversation.take_pending(opening.answers, course.run_id))
    else:
        if conversation.pending is not None:
            if opening.on_prompt == "refuse":
                raise InterruptPending(each.id for each in conversation.interrupts)
            conversation.drop_pending(course.setup.cut_note)
            course.first_message = len(conversation.messages)
        if opening.prompt is None:
            _continue(course)
        if course.prompt is not None:
            conversation.append(course.prompt)
        course.current.begin()
    course.has_floor = True
    course.enter(Phase.CREATED)


def _take_up(course: Course, pending: PendingTurn) -> None:
    """Go on with a turn that waited for a person, as the agent whose turn it is."""
    for name in pending.handed:
        _repeat_handoff(course, name)
        if course.handover is None:
            break
        take_over(course)
    course.already_said = pending.answer.text
    course.current.take_up(pending.answer, course.new_batch(pending.answer.tool_calls, pending))
    _remember_handoff(course, pending)


def _remember_handoff(course: Course, pending: PendingTurn) -> None:
    """A handoff of that turn was made, and said to be: it is not called again, and counts all the same."""
    for each in pending.calls:
        if each.result is not None and each.result.outcome is Outcome.COMPLETED and not each.result.is_error:
            _repeat_handoff(course, each.call.name)


def _repeat_handoff(course: Course, tool_name: str) -> None:
    """Do what a handoff of an earlier run did, if there is still such a tool."""
    tool = course.setup.tools.get(tool_name)
    if tool is not None and tool.hands_over_to is not None:
        with suppress(ToolError):  # the agent that goes on here cannot pay for it: as if it had just been refused
            hand_over(course, tool.hands_over_to, tool_name)


def _continue(course: Course) -> None:
    """Go on with the last answer: in its own words where the model allows that, else because a user says so."""
    messages = course.conversation.messages
    last = messages[-1] if messages else None
    if not isinstance(last, AssistantMessage):
        raise NothingToContinue("There is no answer to continue.")
    said = continued(last, prefill=getattr(course.setup.model, "supports_prefill", False))
    if said is None:
        course.prompt = UserMessage((Text(GO_ON if last.cut else GO_ON_FROM_END),))
        return
    course.current.go_on_from(said)
    course.already_said = last.text
    course.first_message -= 1
