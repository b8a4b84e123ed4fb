"""The injector: stops a run before its k-th step, from any source."""

from __future__ import annotations

import asyncio
import opcode
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..cancellation import Mode
from ..errors import ConnectionFailed, StoreError
from ..hooks import HookEvent
from ..models.scripted import ScriptedModel
from .scenario import Harness, WatchedRun
from .virtual_time import VirtualLoop

_LOAD_CONST: Final = opcode.opmap["LOAD_CONST"]
_NOP: Final = opcode.opmap["NOP"]
_PACKAGE: Final = str(Path(__file__).parent.parent)
_THIS: Final = str(Path(__file__).parent)
_SCRIPTED: Final = str(Path(_PACKAGE) / "models" / "scripted.py")


class Injection(Struct, frozen=True):
    """One stop: its source, and the number of the point before which it comes."""

    source: str
    point: int

    def __str__(self) -> str:
        return f"{self.source}:{self.point}"


StopSource: TypeAlias = Callable[[Harness, WatchedRun], object]

# --- Sources: each stops the target in its own way ------------------------------------------------------------------


def _in_mode(mode: Mode) -> StopSource:
    def stop(_: Harness, target: WatchedRun) -> None:
        target.run.cancel("injected", mode=mode)

    return stop


def _from_thread(_: Harness, target: WatchedRun) -> None:
    thread = threading.Thread(target=target.run.cancel, args=("injected",))
    thread.start()
    thread.join()


def _from_caller(harness: Harness, _: WatchedRun) -> None:
    if harness.caller is not None:
        harness.caller.cancel()


def _from_own_task(_: Harness, target: WatchedRun) -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == f"quiesce run {target.run.id}":
            task.cancel()


def _from_signal(_: Harness, target: WatchedRun) -> None:
    if threading.current_thread() is not threading.main_thread():
        target.run.cancel("injected", source="signal")
        return

    def handler(_: int, __: FrameType | None) -> None:
        target.run.cancel("injected", source="signal")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def _reset(_: Harness, target: WatchedRun) -> None:
    """The connections of the model break."""
    model = target.agent.config.model
    if isinstance(model, ScriptedModel):
        model.break_streams(ConnectionFailed("injected"))


def _stop_and_reset(harness: Harness, target: WatchedRun) -> None:
    _from_loop(harness, target)
    _reset(harness, target)


def _fail_store(_: Harness, target: WatchedRun) -> None:
    """The next write to the store of the conversation fails."""
    store: Any = getattr(target.run.conversation, "store", None)
    if store is None:
        return

    def fail(*written: Any) -> Future[int]:
        del store.write  # once: the method of its class is back
        if target.run.done:  # it had nothing more to write
            return store.write(*written)
        failed: Future[int] = Future()
        failed.set_exception(StoreError("injected"))
        return failed

    store.write = fail


def _stop_and_fail_store(harness: Harness, target: WatchedRun) -> None:
    _from_loop(harness, target)
    _fail_store(harness, target)


def _stop_and_raise(harness: Harness, target: WatchedRun) -> None:
    """Tools that are stopped raise an error of their own instead."""
    target.tool_log.raises_when_stopped = True
    _from_loop(harness, target)


def _sleep_late(_: Harness, __: WatchedRun) -> None:
    """The machine was suspended: all timers of the next minute are late."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += 60.0


def _end_loop(_: Harness, __: WatchedRun) -> None:
    raise LoopLeft


class LoopLeft(SystemExit):
    """Goes up through the loop, as only `SystemExit` does: the loop stops before this very step."""


_from_loop: Final = _in_mode(Mode.NOW)
SOURCES: Final[dict[str, StopSource]] = {
    "loop": _from_loop,
    "thread": _from_thread,
    "task": _from_caller,
    "run_task": _from_own_task,
    "deadline": lambda _, target: target.run.deadline_passed(0.0),
    "parent": lambda harness, _: harness.parent.cancel("injected"),
    "signal": _from_signal,
    "kill": _in_mode(Mode.KILL),
    "after_tools": _in_mode(Mode.AFTER_TOOLS),
    "after_turn": _in_mode(Mode.AFTER_TURN),
    "escalate": _in_mode(Mode.AFTER_TURN),
    "twice": _from_loop,
}
"""Stops before the k-th callback. `hook` stops in the k-th hook call and `line` before the k-th line of Quiesce."""

FAULTS: Final[dict[str, StopSource]] = {
    "stop_and_reset": _stop_and_reset,
    "stop_then_reset": _from_loop,
    "reset_then_stop": _reset,
    "stop_and_store_failure": _stop_and_fail_store,
    "store_failure_then_stop": _fail_store,
    "stop_and_tool_error": _stop_and_raise,
    "late_timers_then_stop": _sleep_late,
    "close": _end_loop,
}
"""Other faults before the k-th callback: a stop together with connections that break, a write that fails, tools that
raise or timers that are late, just before it or just after it; a loop that is closed. `ctrl_c` raises a
`KeyboardInterrupt` before the k-th line of Quiesce."""
POINTS: Final = {"hook": "hook", "line": "line", "ctrl_c": "line"}
"""What is counted for a source, where that is not the steps of the loop."""

# Further stops, by the number of steps after the first one.
_FOLLOW_UPS: Final[dict[str, dict[int, StopSource]]] = {
    "escalate": {2: _from_loop, 4: SOURCES["kill"]},
    "twice": {1: _from_thread, 2: _from_caller, 3: SOURCES["kill"]},
    "stop_then_reset": {1: _reset},
    "reset_then_stop": {1: _from_loop},
    "store_failure_then_stop": {1: _from_loop},
    "late_timers_then_stop": {1: _from_loop},
}

CAUSES: Final = {
    "task": "caller",
    "run_task": "caller",
    "deadline": "deadline",
    "parent": "parent",
    "signal": "signal",
    "hook": "hook",
    "close": "shutdown",
    "ctrl_c": "signal",
}
"""The cause on the receipt, where that is not `user`."""

# Sources whose first injection is not a stop in mode `now`.
_STOPS_LATER: Final = ("escalate", "reset_then_stop", "store_failure_then_stop", "late_timers_then_stop")


class Injector:
    """Counts the points between the start and the end of the target, and stops it at the chosen one."""

    def __init__(
        self, loop: VirtualLoop, harness: Harness, injection: Injection | None, *, count: str = "step"
    ) -> None:
        self._loop: Final = loop
        self._harness: Final = harness
        self._injection: Final = injection
        self._counts: Final = count if injection is None else POINTS.get(injection.source, "step")
        self._steps_since: int | None = None
        self.points = 0
        self.lines: Final[dict[str, list[int]]] = {}
        """The first and the last point of each line of source, while no stop is injected."""
        self.place = ""
        """The line of source before which the stop came, if lines are counted."""
        self.injected_at: float | None = None
        self.on_inject: Callable[[WatchedRun], None] | None = None
        self.after_step: Callable[[WatchedRun], None] | None = None

    def install(self) -> None:
        """Start to count points."""
        self._loop.before_step = self._before_step
        if self._counts == "hook":
            self._harness.on_start(self._hook_into)
        if self._counts == "line":
            self._harness.on_start(lambda _: sys.settrace(self._trace))

    def uninstall(self) -> None:
        """Stop counting."""
        self._loop.before_step = None
        if self._counts == "line":
            sys.settrace(None)

    def _living_target(self) -> WatchedRun | None:
        target = self._harness.target
        return None if target is None or target.run.done else target

    def _before_step(self) -> None:
        target = self._living_target()
        if target is None:
            return
        if self.after_step is not None:
            self.after_step(target)
        if self._steps_since is not None and self._injection is not None:
            self._steps_since += 1
            follow_up = _FOLLOW_UPS.get(self._injection.source, {}).get(self._steps_since)
            if follow_up is not None:
                if self._injection.source in _STOPS_LATER and (target.run.mode or Mode.AFTER_TURN) < Mode.NOW:
                    self.injected_at = self._loop.time()  # P1 counts from the first stop in mode `now`
                    if self.on_inject is not None:
                        self.on_inject(target)
                follow_up(self._harness, target)
        if self._counts == "step":
            self._point(target)

    def _point(self, target: WatchedRun) -> None:
        self.points += 1
        if self._injection is not None and self.points == self._injection.point:
            self._note_injection(target)
            (SOURCES | FAULTS)[self._injection.source](self._harness, target)
            self.injected_at = self._loop.time()  # the clock may have jumped

    def _note_injection(self, target: WatchedRun) -> None:
        self.injected_at = self._loop.time()
        self._steps_since = 0
        if self.on_inject is not None:
            self.on_inject(target)

    # --- Hooks: a stop from inside the k-th call of a hook -------------------------------------------------------

    def _hook_into(self, watched: WatchedRun) -> None:
        if not watched.target:
            return

        def hook(event: HookEvent) -> None:
            self.points += 1
            if self._injection is not None and self.points == self._injection.point and event.run_id == watched.run.id:
                self._note_injection(watched)
                event.cancel("injected")

        watched.agent.hook(HookEvent)(hook)

    # --- Lines: a stop between any two lines, as a signal handler would make it ---------------------------------

    def _trace(self, frame: FrameType, _: str, __: Any) -> Any:
        name, caller = frame.f_code.co_filename, frame.f_back
        if not name.startswith(_PACKAGE) or name.startswith((_THIS, _SCRIPTED)):
            return None
        callers = [each for each in (caller, caller and caller.f_back) if each is not None]
        if any(each.f_code.co_filename.startswith(_THIS) for each in callers):  # the kit looks at the run
            return None
        return self._trace_line

    def _trace_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            target = self._living_target()
            if target is not None:
                self.points += 1
                if self._injection is None and not _is_uncovered(frame):
                    self.lines.setdefault(_place(frame), [self.points])[1:] = [self.points]
                if self._is_due and not _is_uncovered(frame):
                    self.place = _place(frame)
                    self._note_injection(target)
                    if self._injection is not None and self._injection.source == "ctrl_c":
                        self._harness.ctrl_c = True
                        raise KeyboardInterrupt
                    target.run.cancel("injected")
        return self._trace_line

    @property
    def _is_due(self) -> bool:
        return self._injection is not None and self.points >= self._injection.point and self.injected_at is None


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.removeprefix(_PACKAGE)[1:]}:{frame.f_lineno}"


def _is_uncovered(frame: FrameType) -> bool:
    """Whether the line is a `try`, or a `with` that is being left: no signal comes there, only a trace function does.

    Python looks for signals when a function begins, after a call and in loops: not in a `NOP`, which is what a `try`
    is, and not before the call of `__exit__`, which begins with loading None three times.
    """
    code, at = frame.f_code, frame.f_lasti
    if code.co_code[at] == _NOP:
        return True
    steps = [code.co_code[each : each + 2] for each in (at, at + 2, at + 4)]
    return all(len(step) == 2 and step[0] == _LOAD_CONST and code.co_consts[step[1]] is None for step in steps)
