"""An exception before every step of the main thread, as a signal handler could raise it.

A trace function counts each bytecode instruction of the chosen files as one step, and raises at the one that is asked
for. Python calls signal handlers at some of these steps only, so this is more than can happen. When the main thread
blocks before that step, a real signal raises the exception there.
"""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

FILES = ("/quiesce/", "asyncio/base_events.py")
# Seconds between two looks at whether the main thread is blocked.
PATIENCE = 0.02
# Instructions that call no handlers, and that the compiler may leave outside of the `try` around them.
UNCOVERED = {dis.opmap["NOP"], dis.opmap["RETURN_VALUE"]}


class Raiser:
    """Raises an exception at one step of a function, or where that blocks. `reached` says whether it was that step."""

    def __init__(
        self,
        error: BaseException,
        at: int,
        *,
        again: tuple[BaseException, int] | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ready = ready
        self._due = [(at, error)]
        self._again = again
        self._blocked_in = ""
        self.steps = 0
        self.reached = False
        self.where: list[str] = []

    def play(self, function: Callable[[], Any]) -> Any:
        """Call the function. In the main thread only."""
        handler = signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            sys.settrace(before)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/tests/" in name or not any(each in name for each in FILES):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] not in UNCOVERED:
            now, self.steps = self.steps, self.steps + 1
            if self._due and now >= self._due[0][0]:
                self.reached = True
                self._raise(frame)
        return self._step

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        """Twice in the same wait, with no step between, and what is waited for goes on: it is blocked there."""
        here = f"{self.steps}"
        blocked = frame is not None and frame.f_code.co_name in ("wait", "wait_sync", "events_in_this_thread")
        if self._due and blocked and here == self._blocked_in and self._ready():
            self._raise(frame)
        self._blocked_in = here if blocked else ""

    def _raise(self, frame: FrameType | None) -> None:
        assert frame is not None
        self.where.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        _, error = self._due.pop(0)
        if self._again is not None:  # so many steps later; only after a signal, for an exception ends all tracing
            self._due, self._again = [(self.steps + self._again[1], self._again[0])], None
        raise error
