"""From "steered" to "said": what a run does is stopped, what it has said is sealed, and the run goes on.

Like settling, but for one turn. The waits are in a `BoundedShield`, and a stop of the whole run ends them at once.
"""

from __future__ import annotations

import asyncio

from .cancellation import Mode
from .course import Course
from .events import MessageAdded, Steered
from .inbox import join
from .settle import HANG_UP_GRACE, seal, when
from .state import STOPS_AT, Phase


async def turn_aside(course: Course) -> bool:
    """Say what the run is to be steered with, if anything. Whether the run goes on; otherwise it is to settle."""
    if not _is_steered(course):
        return False
    course.enter(Phase.STEERING)
    if course.draft is not None:
        course.draft.close()
    stop, forget = when(course, Mode.AFTER_TURN)
    try:
        await _stop_turn(course, stop)
    finally:
        forget()
    if course.shield.interrupted:
        course.token.cancel("The task was cancelled from outside", source="task")
    if course.token.cancelled:
        return False
    course.unannounced += seal(course)
    course.new_leg()
    message, course.to_say = join(course.to_say), ()
    course.speak(message)
    course.unannounced += (message,)
    course.emit(Steered(message))
    course.emit(MessageAdded(message))
    return True


def _is_steered(course: Course) -> bool:
    if not course.has_floor or course.finished or course.error or course.token.wants(STOPS_AT[course.phase]):
        return False
    return course.collect(urgent_only=True)


async def _stop_turn(course: Course, stop: asyncio.Future[None]) -> None:
    """Stop the tools by their policy, and hang up on the model. A stop of the run cuts this short."""
    if course.batch is not None:
        await course.batch.stop(course.shield, stop, give_way=True)
    strays = [task for task in course.strays if not task.done()]
    await course.shield.wait(strays, seconds=HANG_UP_GRACE, unless=stop)
