"""Every interleaving of two threads, up to a number of pre-emptions, one after the other and always the same.

Real threads run the code, but only the one that holds the baton moves. A trace function counts each line (or each
bytecode instruction) of the chosen files as one step; a schedule is the list of steps at which the baton goes to the
other thread. `explore()` plays every schedule: first none, then one pre-emption at each step, then two, and so on.
Bugs of concurrency nearly always show with two.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Scenario = Callable[[], tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]]


class _Baton:
    """Two threads, of which one moves."""

    def __init__(self, files: tuple[str, ...], switches: tuple[int, ...], *, opcodes: bool) -> None:
        self._files = files
        self._switches = frozenset(switches)
        self._opcodes = opcodes
        self._turn = (threading.Semaphore(0), threading.Semaphore(0))
        self._done = [False, False]
        self.errors: list[BaseException] = []
        self.steps = 0

    def play(self, functions: tuple[Callable[[], Any], Callable[[], Any]]) -> None:
        threads = [threading.Thread(target=self._work, args=(place, each)) for place, each in enumerate(functions)]
        for thread in threads:
            thread.start()
        self._turn[0].release()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _work(self, place: int, function: Callable[[], Any]) -> None:
        self._turn[place].acquire()

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if not frame.f_code.co_filename.endswith(self._files):
                return None
            frame.f_trace_opcodes = self._opcodes
            frame.f_trace_lines = not self._opcodes
            return step

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            if event in ("line", "opcode"):
                now, self.steps = self.steps, self.steps + 1
                if now in self._switches and not self._done[1 - place]:
                    self._turn[1 - place].release()
                    self._turn[place].acquire()
            return step

        sys.settrace(trace)
        try:
            function()
        except BaseException as error:
            self.errors.append(error)
        finally:
            sys.settrace(None)
            self._done[place] = True
            self._turn[1 - place].release()


def explore(scenario: Scenario, *, files: tuple[str, ...], preemptions: int = 2, opcodes: bool = False) -> int:
    """Play every schedule of a scenario, with either thread first. Returns how many there were.

    `scenario()` makes a fresh pair of functions and a check to call when both have ended. A failure says which schedule
    it was; `replay()` plays that one again.
    """
    count = 0
    for swapped in (False, True):
        waiting: list[tuple[int, ...]] = [()]
        while waiting:
            switches = waiting.pop()
            steps = replay(scenario, switches, swapped=swapped, files=files, opcodes=opcodes)
            count += 1
            if len(switches) < preemptions:
                first = switches[-1] + 1 if switches else 0
                waiting.extend((*switches, step) for step in range(first, steps))
    return count


def replay(
    scenario: Scenario, switches: tuple[int, ...], *, swapped: bool, files: tuple[str, ...], opcodes: bool = False
) -> int:
    """Play one schedule; returns how many steps it took."""
    first, second, check = scenario()
    baton = _Baton(files, switches, opcodes=opcodes)
    try:
        baton.play((second, first) if swapped else (first, second))
        check()
    except BaseException as error:
        error.add_note(f"schedule: replay(scenario, {switches}, swapped={swapped}, opcodes={opcodes})")
        raise
    return baton.steps
