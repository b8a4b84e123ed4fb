"""The stop of one tool call: its deadline, its timer, and a cancellation that a shield defers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from .._threads.loop_callback import stopping
from ..cancellation import Mode
from .host import ToolHost
from .invocation import Invocation
from .policy import EXIT_GRACE, FINAL_GRACE
from .stop_rules import grace_of, is_cancelled_after_grace, runs_until_grace_ends, stop_timeout
from .tool import Tool


class CallStop:
    """Stops one call by the policy of its tool.

    `reason` is why this call alone was cancelled; it is empty while no stop, or a stop of the whole run, concerns it.
    `shield_note` is what the receipt says about a shield that the stop has waited for.
    """

    def __init__(self, tool: Tool | None, invocation: Invocation, host: ToolHost) -> None:
        self._tool: Final = tool
        self._invocation: Final = invocation
        self._loop: Final = host.loop
        self._stop_run: Final = host.stop_because
        self._deadline: float | None = None
        self._cancel_deferred = False
        self._timer: asyncio.TimerHandle | None = None
        self.reason = ""
        self.shield_note = ""

    def grace_left(self) -> float:
        """The seconds that what the tool has started may still take to end."""
        if self._deadline is None:
            return 0.0 if self._tool is None else self._tool.policy.grace
        return max(0.0, self._deadline - self._loop.time())

    def timeout(self, tool: Tool | None, mode: Mode) -> float:
        """How long a stop in this mode waits for the call before it abandons it; `tool` is None unless it runs."""
        return FINAL_GRACE if tool is None else stop_timeout(tool, self._invocation, mode)

    @property
    def final_grace(self) -> float:
        """How long the call may take to end once it was cancelled after its grace."""
        return EXIT_GRACE if self._invocation.has_programs or self._tool is None else self._tool.final_grace

    def request(self, task: asyncio.Task[Any], tool: Tool | None, mode: Mode) -> None:
        """Ask the call to stop. Without a running `tool`, its task is cancelled and nothing else needs to end."""
        self._invocation.stopping = True
        if tool is None:
            task.cancel()
            return
        deadline = self._loop.time() + grace_of(tool, mode)
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        shielded = self._invocation.shielded and mode is not Mode.KILL
        if shielded:
            self.shield_note = f"The stop waited for its protected part: {self._invocation.label}."
        if self._invocation.worker is not None:
            self._invocation.worker.stop(self.grace_left())
        elif runs_until_grace_ends(tool, mode):
            pass
        elif shielded:
            self._cancel_deferred = True
        else:
            self._invocation.stop_programs(self.grace_left())
            if task.cancelling() and mode is not Mode.KILL:
                return  # a steer has cancelled it before, and it is cleaning up
            task.cancel()

    def on_unshield(self, task: asyncio.Task[Any] | None) -> None:
        """The tool has left its last shield: a cancellation that the shield deferred takes effect."""
        if self._cancel_deferred and task is not None:
            self._cancel_deferred = False
            task.cancel()

    def cancel_after_grace(self, task: asyncio.Task[Any] | None, tool: Tool | None) -> bool:
        """Cancel a task that was allowed to finish and has not. Whether there was one."""
        if task is None or tool is None or self._invocation.worker:
            return False
        if not (is_cancelled_after_grace(tool) or self._cancel_deferred) or task.cancelling():
            return False
        return task.cancel()

    def set_timer(self, seconds: float | None, then: Callable[[], None]) -> None:
        """Replace the call's one timer: first for the tool's timeout, later for the end of its grace."""
        self.clear_timer()
        self._timer = None if seconds is None else self._loop.call_later(seconds, stopping(then, self._stop_run))

    def clear_timer(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
