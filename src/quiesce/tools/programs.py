"""The programs of one tool call: those under a supervisor, and those that its function has started by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from ..processes.started import StartedProgram, end_programs
from .policy import EXIT_GRACE

if TYPE_CHECKING:
    from .program import Program


class CallPrograms(Struct, eq=False):
    """What a call has started.

    supervised   the programs of `ctx.run_process`
    started      those that the function has started by itself
    keep         whether the latter go on when the call is stopped
    """

    supervised: list[Program] = field(default_factory=list["Program"])
    started: list[StartedProgram] = field(default_factory=list[StartedProgram])
    keep: bool = False

    async def end_started(self, grace: float) -> None:
        """End what the function has started by itself, unless it is kept: TERM now, KILL after `grace` seconds."""
        if not self.keep and any(each.running for each in self.started):
            await end_programs(self.started, grace, EXIT_GRACE)

    def kill(self) -> None:
        """End them all at once, but for those that are kept."""
        for program in self.supervised:
            program.stop(0.0)
        for each in () if self.keep else self.started:
            each.kill()

    def end_with_loop(self) -> bool:
        """The loop was closed: end them all and wait for that. Whether the supervised ones have ended."""
        ended = [program.end_with_loop() for program in self.supervised]
        for each in () if self.keep else self.started:
            each.kill_and_wait(EXIT_GRACE)
        return all(ended)

    def labels(self) -> list[str]:
        """The names, for the receipt, of those that have not ended."""
        supervised = [program.label for program in self.supervised if not program.ended]
        return supervised + [each.label for each in self.started if each.running]
