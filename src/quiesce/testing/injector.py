"""The injector: a stop before the k-th step of a run, from every source."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from msgspec import Struct

from ..cancellation import Mode
from ..hooks import HookEvent
from .scenario import Stage, WatchedRun
from .virtual_time import VirtualLoop

_PACKAGE: Final = str(Path(__file__).parent.parent)
_THIS: Final = str(Path(__file__).parent)


class Shot(Struct, frozen=True):
    """One stop: from where, and before which point."""

    source: str
    point: int

    def __str__(self) -> str:
        return f"{self.source}:{self.point}"


# --- Sources: each stops the victim in its own way ------------------------------------------------------------------


def _from_loop(_: Stage, victim: WatchedRun) -> None:
    victim.run.cancel("injected")


def _from_thread(_: Stage, victim: WatchedRun) -> None:
    thread = threading.Thread(target=victim.run.cancel, args=("injected",))
    thread.start()
    thread.join()


def _from_caller(stage: Stage, _: WatchedRun) -> None:
    if stage.caller is not None:
        stage.caller.cancel()


def _from_own_task(_: Stage, victim: WatchedRun) -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == f"quiesce run {victim.run.id}":
            task.cancel()


def _from_deadline(_: Stage, victim: WatchedRun) -> None:
    victim.run.deadline_passed(0.0)


def _from_parent(stage: Stage, _: WatchedRun) -> None:
    stage.parent.cancel("injected")


def _from_signal(_: Stage, victim: WatchedRun) -> None:
    if threading.current_thread() is not threading.main_thread():
        victim.run.cancel("injected", source="signal")
        return

    def handler(_: int, __: FrameType | None) -> None:
        victim.run.cancel("injected", source="signal")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def _kill(_: Stage, victim: WatchedRun) -> None:
    victim.run.cancel("injected", mode="kill")


def _after_tools(_: Stage, victim: WatchedRun) -> None:
    victim.run.cancel("injected", mode="after_tools")


def _after_turn(_: Stage, victim: WatchedRun) -> None:
    victim.run.cancel("injected", mode="after_turn")


SOURCES: Final[dict[str, Callable[[Stage, WatchedRun], None]]] = {
    "loop": _from_loop,
    "thread": _from_thread,
    "task": _from_caller,
    "run_task": _from_own_task,
    "deadline": _from_deadline,
    "parent": _from_parent,
    "signal": _from_signal,
    "kill": _kill,
    "after_tools": _after_tools,
    "after_turn": _after_turn,
    "escalate": _after_turn,
    "twice": _from_loop,
}
"""Stops before the k-th callback. `hook` stops in the k-th hook call and `line` before the k-th line of Quiesce."""

# What follows a first shot, and so many steps later.
_FOLLOW_UPS: Final[dict[str, dict[int, Callable[[Stage, WatchedRun], None]]]] = {
    "escalate": {2: _from_loop, 4: _kill},
    "twice": {1: _from_thread, 2: _from_caller, 3: _kill},
}

EXPECTED_CAUSE: Final = {
    "loop": "user",
    "thread": "user",
    "task": "caller",
    "run_task": "caller",
    "deadline": "deadline",
    "parent": "parent",
    "signal": "signal",
    "hook": "hook",
    "line": "user",
    "kill": "user",
    "after_tools": "user",
    "after_turn": "user",
    "escalate": "user",
    "twice": "user",
}


class Injector:
    """Counts the points of the victim's life, and fires at the chosen one."""

    def __init__(self, loop: VirtualLoop, stage: Stage, shot: Shot | None, *, count: str = "step") -> None:
        self._loop: Final = loop
        self._stage: Final = stage
        self._shot: Final = shot
        self._counts: Final = count if shot is None else {"hook": "hook", "line": "line"}.get(shot.source, "step")
        self._steps_since: int | None = None
        self.points = 0
        self.fired_at: float | None = None
        self.on_fire: Callable[[WatchedRun], None] | None = None
        self.after_step: Callable[[WatchedRun], None] | None = None

    def arm(self) -> None:
        """Begin to count."""
        self._loop.before_step = self._before_step
        if self._counts == "hook":
            self._stage.on_start(self._hook_into)
        if self._counts == "line":
            self._stage.on_start(lambda _: sys.settrace(self._trace))

    def disarm(self) -> None:
        """Count no more."""
        self._loop.before_step = None
        if self._counts == "line":
            sys.settrace(None)

    def _living_victim(self) -> WatchedRun | None:
        victim = self._stage.victim
        return None if victim is None or victim.run.done else victim

    def _before_step(self) -> None:
        victim = self._living_victim()
        if victim is None:
            return
        if self.after_step is not None:
            self.after_step(victim)
        if self._steps_since is not None and self._shot is not None:
            self._steps_since += 1
            follow_up = _FOLLOW_UPS.get(self._shot.source, {}).get(self._steps_since)
            if follow_up is not None:
                if self._shot.source == "escalate" and (victim.run.mode or Mode.AFTER_TURN) < Mode.NOW:
                    self.fired_at = self._loop.time()  # promptness counts from the first stop that is not patient
                    if self.on_fire is not None:
                        self.on_fire(victim)
                follow_up(self._stage, victim)
        if self._counts == "step":
            self._point(victim)

    def _point(self, victim: WatchedRun) -> None:
        self.points += 1
        if self._shot is not None and self.points == self._shot.point:
            self._mark(victim)
            SOURCES[self._shot.source](self._stage, victim)

    def _mark(self, victim: WatchedRun) -> None:
        self.fired_at = self._loop.time()
        self._steps_since = 0
        if self.on_fire is not None:
            self.on_fire(victim)

    # --- Hooks: a stop from inside the k-th call of a hook -------------------------------------------------------

    def _hook_into(self, watched: WatchedRun) -> None:
        if not watched.victim:
            return

        def hook(event: HookEvent) -> None:
            self.points += 1
            if self._shot is not None and self.points == self._shot.point and event.run_id == watched.run.id:
                self._mark(watched)
                event.cancel("injected")

        watched.agent.hook(HookEvent)(hook)

    # --- Lines: a stop between any two lines, as a signal handler would make it ---------------------------------

    def _trace(self, frame: FrameType, _: str, __: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) or name.startswith(_THIS):
            return None
        return self._trace_line

    def _trace_line(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "line":
            victim = self._living_victim()
            if victim is not None:
                self.points += 1
                if self._shot is not None and self.points == self._shot.point:
                    self._mark(victim)
                    victim.run.cancel("injected")
        return self._trace_line
