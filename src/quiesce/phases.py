"""Where a run is: its phases, and which may follow which."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .cancellation.cause import Mode


class Phase(StrEnum):
    """What a run is doing right now."""

    WAITING = "waiting"
    CREATED = "created"
    TURN_START = "turn_start"
    CALLING = "calling"
    STREAMING = "streaming"
    BACKING_OFF = "backing_off"
    ANSWERED = "answered"
    ACTING = "acting"
    TURN_END = "turn_end"
    STEERING = "steering"
    SETTLING = "settling"
    ENDED = "ended"


LEGAL: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.WAITING: frozenset({Phase.CREATED, Phase.SETTLING}),
    Phase.CREATED: frozenset({Phase.TURN_START, Phase.ACTING, Phase.STEERING, Phase.SETTLING}),
    Phase.TURN_START: frozenset({Phase.CALLING, Phase.STEERING, Phase.SETTLING}),
    Phase.CALLING: frozenset({Phase.STREAMING, Phase.BACKING_OFF, Phase.ANSWERED, Phase.STEERING, Phase.SETTLING}),
    Phase.STREAMING: frozenset({Phase.BACKING_OFF, Phase.ANSWERED, Phase.STEERING, Phase.SETTLING}),
    Phase.BACKING_OFF: frozenset({Phase.CALLING, Phase.STEERING, Phase.SETTLING}),
    Phase.ANSWERED: frozenset({Phase.ACTING, Phase.TURN_END, Phase.STEERING, Phase.SETTLING}),
    Phase.ACTING: frozenset({Phase.TURN_END, Phase.STEERING, Phase.SETTLING}),
    Phase.TURN_END: frozenset({Phase.TURN_START, Phase.STEERING, Phase.SETTLING}),
    Phase.STEERING: frozenset({Phase.STEERING, Phase.TURN_START, Phase.SETTLING}),
    Phase.SETTLING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}

# The most patient mode that stops a run in each phase. `after_turn` waits for the turn's end; `after_tools` cuts the
# model at once but waits for tools that run; everything else obeys every stop.
STOPS_AT: Final[dict[Phase, Mode]] = {
    Phase.WAITING: Mode.AFTER_TURN,
    Phase.CREATED: Mode.AFTER_TURN,
    Phase.TURN_START: Mode.AFTER_TURN,
    Phase.CALLING: Mode.AFTER_TOOLS,
    Phase.STREAMING: Mode.AFTER_TOOLS,
    Phase.BACKING_OFF: Mode.AFTER_TOOLS,
    Phase.ANSWERED: Mode.AFTER_TOOLS,
    Phase.ACTING: Mode.NOW,
    Phase.TURN_END: Mode.NOW,
    Phase.STEERING: Mode.AFTER_TURN,
}

# Before these, a run that is to pause waits. It never waits in the middle of an answer or of a turn's tools.
PAUSES: Final = frozenset({Phase.TURN_START, Phase.CALLING, Phase.ACTING})
