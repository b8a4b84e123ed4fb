"""Ctrl-C at every line of some files, one play for each line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from quiesce.testing.injector import _is_uncovered


def interrupted_at_each_line(files: tuple[str, ...], play: Callable[[Callable[[Callable[[], Any]], Any]], None]) -> int:
    """Call `play(press)` for each line of `files` that is executed inside `press(function)`. The number of plays.

    `press` calls the function and raises a `KeyboardInterrupt` before the chosen line.
    """
    for line in range(1, 100_000):
        came = _Lines(files, line)
        play(came.press)
        if not came.pressed:
            return line - 1
    raise AssertionError("This never ends.")


class _Lines:
    def __init__(self, files: tuple[str, ...], line: int) -> None:
        self._files = files
        self._left = line
        self.pressed = False

    def press(self, function: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        except KeyboardInterrupt:
            assert self.pressed
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, _: str, __: Any) -> Any:
        return self._line if frame.f_code.co_filename.endswith(self._files) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and not self.pressed and not _is_uncovered(frame):
            self._left -= 1
            if self._left == 0:
                self.pressed = True
                raise KeyboardInterrupt
        return self._line
