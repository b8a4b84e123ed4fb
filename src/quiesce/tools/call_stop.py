"""The stop of one tool call: the rules for it, its deadline, its timer, and a cancellation that a shield defers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .._threads.loop_callback import stopping
from ..cancellation import CancellationToken, Mode
from .policy import EXIT_GRACE
from .tool import Tool

if TYPE_CHECKING:
    from .invocation import Invocation


class CallStop(Struct, eq=False):
    """Stops one call by the policy of its tool.

    tool          None when the model asked for one that does not exist
    on_error      is called when what ends the program is raised in the timer
    work_token    the token of the work that the call belongs to
    own_token     the token of this call, once something has asked for it
    task          that of the call, once it has begun
    requested     whether a stop was requested; from then on the call's result quotes the output of its programs
    reason        why this call alone was cancelled; empty while no stop, or a stop of the whole run, concerns it
    shield_note   what the receipt says about a shield that the stop has waited for
    """

    tool: Tool | None
    loop: asyncio.AbstractEventLoop
    on_error: Callable[[BaseException], None]
    work_token: CancellationToken
    own_token: CancellationToken | None = None
    task: asyncio.Task[Any] | None = None
    requested: bool = False
    deadline: float | None = None
    cancel_deferred: bool = False
    timer: asyncio.TimerHandle | None = None
    reason: str = ""
    shield_note: str = ""

    @property
    def token(self) -> CancellationToken:
        """The token of this call: cancelled with the work, or alone. Made at the first look. In the loop."""
        if self.own_token is None:
            self.own_token = self.work_token.child()
        return self.own_token

    @property
    def cancelled(self) -> bool:
        """Whether a stop of this call, or of the work that it belongs to, was asked for."""
        return (self.own_token or self.work_token).cancelled

    def grace_left(self) -> float:
        """The seconds that what the tool has started may still take to end."""
        if self.deadline is None:
            return 0.0 if self.tool is None else self.tool.policy.grace
        return max(0.0, self.deadline - self.loop.time())

    def request(self, tool: Tool, invocation: Invocation, mode: Mode) -> float:
        """Ask a call whose tool runs to stop. Returns the seconds to wait until it is abandoned.

        A tool that is only cancelled after its grace is cancelled then.
        """
        assert self.task is not None
        self.requested = True
        is_kill = mode is Mode.KILL
        grace = 0.0 if is_kill else tool.policy.grace
        now = self.loop.time()
        self.deadline = now + grace if self.deadline is None else min(self.deadline, now + grace)
        shielded = bool(invocation.shields) and not is_kill
        if shielded:
            self.shield_note = f"The stop waited for its protected part: {invocation.label}."
        runs_on = tool.kind == "sync" or (not is_kill and tool.policy.on_stop in ("finish", "abandon"))
        if invocation.worker is not None:
            invocation.worker.stop(max(0.0, self.deadline - now))
        elif runs_on:  # a thread cannot be cancelled: its tool reads the token, and the task only waits for the thread
            pass
        elif shielded:
            self.cancel_deferred = True
        else:
            for program in invocation.programs.supervised:
                program.stop(max(0.0, self.deadline - now))
            if is_kill or not self.task.cancelling():  # else a steer has cancelled it before, and it is cleaning up
                self.task.cancel()
        if invocation.worker is not None or (not runs_on and _any_running(invocation)):
            # The process is killed when its grace is over; the rest is for the kernel to end it.
            return grace + EXIT_GRACE
        if is_kill:
            return 0.0 if tool.kind == "sync" else tool.final_grace
        return grace

    def on_unshield(self) -> None:
        """The tool has left its last shield: a cancellation that the shield deferred takes effect."""
        if self.cancel_deferred and self.task is not None:
            self.cancel_deferred = False
            self.task.cancel()

    def cancel_after_grace(self, tool: Tool | None, invocation: Invocation) -> bool:
        """Cancel the call's task if it was allowed to finish and its grace is over. Returns whether that was so."""
        if self.task is None or tool is None or invocation.worker:
            return False
        is_cancelled_then = (tool.kind != "sync" and tool.policy.on_stop == "finish") or self.cancel_deferred
        return is_cancelled_then and not self.task.cancelling() and self.task.cancel()

    def final_grace(self, invocation: Invocation) -> float:
        """How long the call may take to end once it was cancelled after its grace."""
        return EXIT_GRACE if self.tool is None or _any_running(invocation) else self.tool.final_grace

    def set_timer(self, seconds: float | None, then: Callable[[], None]) -> None:
        """Replace the call's one timer: first for the tool's timeout, later for the end of its grace."""
        self.clear_timer()
        self.timer = None if seconds is None else self.loop.call_later(seconds, stopping(then, self.on_error))

    def clear_timer(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None


def _any_running(invocation: Invocation) -> bool:
    """Whether a program that the tool started has not ended."""
    programs = invocation.programs
    return bool((programs.supervised or programs.started) and programs.labels())
