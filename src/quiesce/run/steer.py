"""From "steered" to "said": what a run does is stopped, what it has said is sealed, and the run goes on.

Like settling, but for one turn. The waits are in a `BoundedShield`, and a stop of the whole run ends them at once.
"""

from __future__ import annotations

from ..cancellation import BoundedShield, Mode
from ..events import MessageAdded, Steered
from ..phases import Phase
from .handoff import take_over
from .settle import HANG_UP_GRACE, seal, when
from .state import Course


async def turn_aside(course: Course) -> bool:
    """Say what the run is to be steered with, if anything. Whether the run goes on; otherwise it is to settle."""
    if not course.has_floor or course.finished or course.error or course.token.cancelled:
        return False
    if not course.collect(urgent_only=True):
        was_steered = course.leg.cancelled  # and it has been said already, at the end of its turn
        course.new_leg()
        return was_steered
    course.enter(Phase.STEERING)
    if course.current.draft is not None:
        course.current.draft.close()
    await _stop_turn(course)
    if course.token.cancelled:
        return False
    _speak(course)
    return True


def _speak(course: Course) -> None:
    """Seal what was cut, and say what is to be said. Nothing waits in here."""
    course.unannounced += seal(course)
    take_over(course)
    course.new_leg()
    message = course.next_words()
    course.current.speak(message)
    course.unannounced += (message,)
    course.emit(Steered(message))
    course.emit(MessageAdded(message))


async def _stop_turn(course: Course) -> None:
    """Stop the tools by their policy, and hang up on the model. A stop of the run cuts this short."""
    stop, forget = when(course, Mode.AFTER_TURN)

    def on_interrupt() -> None:
        course.shield.interrupted = True  # to be passed on when all is at rest
        course.token.cancel("The task was cancelled from outside", source="task")

    shield = BoundedShield(f"steering run {course.run_id}", on_interrupt)
    try:
        if course.current.batch is not None:
            await course.current.batch.stop(shield, stop, give_way=True)
        await course.errands.wait_for_strays(shield, seconds=HANG_UP_GRACE, unless=stop)
    finally:
        forget()
