"""How things end in another process: its exit status, and the exceptions that tell of it."""

from __future__ import annotations

import os
import signal
from typing import Final

from msgspec import Struct

from ..errors import ToolError


class ExitStatus(Struct, frozen=True):
    """How a process ended, as `waitpid` tells it."""

    status: int

    @property
    def code(self) -> int:
        """The exit code, or the negative number of the signal."""
        return os.waitstatus_to_exitcode(self.status)

    @property
    def signal_name(self) -> str | None:
        """The name of the signal that ended it, if one did."""
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class ProcessEnded(Exception):
    """A call's process ended before its function returned."""

    def __init__(self, exit_status: ExitStatus | None, failure: str | None = None) -> None:
        super().__init__(exit_status)
        self.exit: Final = exit_status
        self.failure: Final = failure


class RemoteTraceback(Exception):
    """The traceback of an exception that was raised in a worker process, as its cause."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace: Final = trace

    def __str__(self) -> str:
        return f"\n{self.trace}"


class RemoteError(ToolError):
    """Stands for an exception that could not be sent from a worker process: its type and its words."""
