"""When one tool call started, ended and was abandoned."""

from __future__ import annotations

from msgspec import Struct


class CallTimes(Struct, eq=False, gc=False):
    """The times of one call, on the clock of the event loop it was made in. Each is None until it has come.

    started     the tool's function is about to run
    ended       the call has a result, or waits for a person
    abandoned   the call did not stop in time, so that the run no longer waits for it
    """

    started: float | None = None
    ended: float | None = None
    abandoned: float | None = None

    @property
    def lateness(self) -> float:
        """Seconds from the moment at which the call was abandoned to its end."""
        return 0.0 if self.abandoned is None or self.ended is None else self.ended - self.abandoned
