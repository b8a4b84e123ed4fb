"""What a tool in a worker process prints to."""

from __future__ import annotations

import io
import os
import sys


class Output(io.TextIOWrapper):
    """Text that leaves the process soon, so that it is kept whatever ends the process.

    A line leaves when it is complete, in one piece. A part of one leaves with an empty write, which is what
    `print(..., end="")` does last.
    """

    def write(self, text: str, /) -> int:
        """Write; what ends a line is passed on by itself."""
        count = super().write(text)
        if not text:
            self.flush()
        return count


def redirect_output(stdout: int, stderr: int) -> None:
    """Make these the outputs of this process, in place of those that it has; its input is empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for handle, place in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(handle, place)
        os.close(handle)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _output(1, "replace")
    sys.stderr = _output(2, "backslashreplace")


def _output(handle: int, errors: str) -> Output:
    raw = open(handle, "wb", closefd=False)  # noqa: SIM115
    return Output(raw, encoding="utf-8", errors=errors, line_buffering=True)
