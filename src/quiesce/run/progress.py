"""How far a run has come: its phase, its turn, its tries, and whether it has finished or failed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .._threads.latch import Latch
from ..cancellation import CancellationToken, StopScope
from ..phases import LEGAL, STOPS_AT, Phase
from ..result import RunResult, StopReason
from .pause import PauseSwitch


class Progress:
    """Where the loop is. Written by the run's own task only, except for what says otherwise."""

    __slots__ = (
        "_stop_watching",
        "asked_during",
        "at_rest",
        "attempt",
        "error",
        "finished",
        "loop",
        "output_tries",
        "pause",
        "phase",
        "retry_delay",
        "scope",
        "stop_note",
        "turn_number",
        "work_token",
    )

    def __init__(self, token: CancellationToken) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.phase = Phase.WAITING
        self.turn_number = 0
        self.attempt = 0
        self.output_tries = 0
        self.retry_delay = 0.0
        self.work_token = token.child()
        """A child of the run's token for the current work: cancelled with it, or alone when the run is steered."""
        self.scope: StopScope | None = None
        self.pause: Final = PauseSwitch(self.loop)
        self.asked_during: Phase | None = None
        """The phase in which a stop was first asked for. Written from any thread."""
        self.stop_note: str | None = None
        """What the conversation says where the run was stopped, if not the agent's `cut_note`."""
        self.finished: tuple[StopReason, tuple[Any, ...]] | None = None
        self.error: Exception | None = None
        self.at_rest: Final[Latch[RunResult[Any]]] = Latch()
        """Set with the result when the run is at rest. Waited for from any thread."""
        self._stop_watching: Final = token.watch(self._note_request)

    def enter(self, phase: Phase) -> bool:
        """Go on to the next phase, and let the scope obey the stops that matter there. Whether one closes it now."""
        if phase not in LEGAL[self.phase]:
            raise AssertionError(f"A run cannot go from {self.phase} to {phase}.")
        self.phase = phase
        if phase is Phase.ENDED:
            self._stop_watching()
        if self.scope is None or phase not in STOPS_AT:
            return False
        self.scope.mode = STOPS_AT[phase]
        return self.work_token.stop_asked and self.scope.react()

    @property
    def stop_wanted(self) -> bool:
        """Whether a stop was asked for that the current phase obeys."""
        return self.work_token.stop_asked and self.work_token.wants(STOPS_AT[self.phase])

    @property
    def over(self) -> bool:
        """Whether the run has finished or failed by itself, so that a stop comes too late."""
        return self.finished is not None or self.error is not None

    @property
    def ended(self) -> bool:
        """Whether the run is at rest."""
        return self.phase is Phase.ENDED

    def finish(self, reason: StopReason, output: tuple[Any, ...] = ()) -> None:
        """Note that the run has come to its own end. A stop from now on comes too late."""
        self.finished = (reason, output)

    def fail(self, error: Exception) -> None:
        """End the run with an error, unless it is ending already; settling then says what was not saved."""
        if self.phase not in (Phase.SETTLING, Phase.ENDED) and self.error is None:
            self.error = error
            if self.scope is not None:
                self.scope.close()

    def _note_request(self, _: object) -> None:
        if self.asked_during is None:
            self.asked_during = self.phase
