"""A person at a real terminal: tmux holds the screen, we press the keys."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="NOT TESTED: there is no tmux here")


class Screen:
    """A tmux server of its own with one pane, in which the `quiesce` command runs."""

    def __init__(self, arguments: str, width: int, height: int, program: str, term: str = "") -> None:
        self._socket = f"quiesce-{uuid.uuid4().hex[:8]}"
        of_kind = f"export TERM={term}; " if term else ""
        command = f"trap : INT; {of_kind}{shlex.quote(sys.executable)} {program} {arguments}; echo EXIT $?; exec cat"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), f"sh -c {shlex.quote(command)}"
        )

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments],
            cwd=ROOT,
            env={**without_size(os.environ), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names for them: Enter, Escape, Tab, C-c."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def pid(self) -> int:
        """The process of the command itself, a child of the pane's shell."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def hang_up(self) -> None:
        """Close the terminal window."""
        self._tmux("kill-session")

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def title(self) -> str:
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def wait(self, wanted: str | Callable[[str], object], seconds: float = 40.0) -> str:
        """Look at the screen until a pattern, or a condition, is there. Returns the screen."""
        end = time.monotonic() + seconds
        while True:
            shown = self.text
            if wanted(shown) if callable(wanted) else re.search(wanted, shown):
                return shown
            assert time.monotonic() < end, f"{wanted!r} did not come; the screen shows:\n{shown}"
            time.sleep(0.03)

    def close(self) -> None:
        """Close the window for good; whatever still ran in it must end by itself."""
        try:
            left = [self.pid()]
        except (subprocess.CalledProcessError, IndexError, OSError):
            left = []
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True, timeout=30, check=False)
        for pid in left:
            wait_for_end(pid)


def without_size(environment: Mapping[str, str]) -> dict[str, str]:
    """Programs believe these rather than the terminal, and pytest-xdist sets them."""
    return {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}


def wait_for_end(pid: int, seconds: float = 30.0) -> None:
    """Wait until a process that is not our child is gone."""
    end = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"process {pid} did not end when its terminal was closed")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def screen(
    arguments: str, width: int = 100, height: int = 30, program: str = "-m quiesce.cli", term: str = ""
) -> Iterator[Screen]:
    shown = Screen(arguments, width, height, program, term)
    try:
        yield shown
    finally:
        shown.close()
