"""The programs of one tool call: those under a supervisor, and those that its function has started by itself."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ..processes.started import StartedProgram, end_programs, started_by, watch_programs
from .policy import EXIT_GRACE

if TYPE_CHECKING:
    from .program import Program


class CallPrograms:
    """What a call has started. `supervised` are the programs of `ctx.run_process`."""

    def __init__(self) -> None:
        self.supervised: Final[list[Program]] = []
        self._started: Final[list[StartedProgram]] = []
        self._keep = False

    @contextmanager
    def noted(self, *, keep: bool) -> Generator[None]:
        """Note what the code in this block starts by itself. `keep` says that it goes on when the call is stopped."""
        self._keep = keep
        watch_programs()
        before = started_by.set(self._started)
        try:
            yield
        finally:
            with suppress(ValueError):  # the loop was closed, which ends the call in another context
                started_by.reset(before)

    async def end_started(self, grace: float) -> None:
        """End what the function has started by itself, unless it is kept: TERM now, KILL after `grace` seconds."""
        if not self._keep and any(each.running for each in self._started):
            await end_programs(self._started, grace, EXIT_GRACE)

    def kill_started(self) -> None:
        """End what the function has started by itself, at once, unless it is kept."""
        for each in () if self._keep else self._started:
            each.kill()

    def stop(self, grace: float) -> None:
        """End the supervised programs: TERM now, KILL after `grace` seconds."""
        for program in self.supervised:
            program.stop(grace)

    def end_with_loop(self) -> bool:
        """The loop was closed: end them all and wait for that. Whether the supervised ones have ended."""
        ended = [program.end_with_loop() for program in self.supervised]
        for each in () if self._keep else self._started:
            each.kill_and_wait(EXIT_GRACE)
        return all(ended)

    @property
    def any_running(self) -> bool:
        """Whether one of them has not ended."""
        return bool(self.labels())

    def labels(self) -> list[str]:
        """The names, for the receipt, of those that have not ended."""
        supervised = [program.label for program in self.supervised if not program.ended]
        return supervised + [each.label for each in self._started if each.running]
