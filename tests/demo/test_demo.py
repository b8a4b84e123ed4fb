"""`make demo`, as people run it: in a process of its own, without and with a terminal."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from quiesce.models.providers.local import is_available

DEMO = [sys.executable, "-m", "quiesce.demo", "--scripted"]
# A new session has no terminal until it takes one; only then does Ctrl-C reach it as a signal.
AT_A_TERMINAL = """
import fcntl, runpy, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("quiesce.demo", run_name="__main__")
"""
ESC, CTRL_C, CTRL_D = b"\x1b", b"\x03", b"\x04"


@pytest.mark.promise("P1", "P4")
def test_without_a_terminal_it_stops_itself_half_way_and_goes_on() -> None:
    done = subprocess.run(DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    first, second = re.findall(r"^-{20,}$(.*?)^-{20,}$", done.stdout, re.DOTALL | re.MULTILINE)[0::1]
    assert "was stopped (user: half way)" in first
    assert "check_weather: completed" in first
    assert "heat_oven: abandoned, may still be running" in first
    assert "ended by itself (end_turn)" in second
    assert "Later: heat_oven, which was abandoned, ended" in done.stdout
    assert "I would bake it." in done.stdout


class Terminal:
    """A person at a real pseudo-terminal."""

    def __init__(self, **environment: str) -> None:
        self._end, inner = os.openpty()
        self.settings = termios.tcgetattr(inner)
        self._inner = inner
        self.child = subprocess.Popen(
            [sys.executable, "-c", AT_A_TERMINAL, "--scripted"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **environment},
        )
        self.seen = ""

    def press(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def read_until(self, wanted: str, seconds: float = 30.0) -> str:
        """Everything since the last call, up to and with `wanted`."""
        deadline = time.monotonic() + seconds
        while wanted not in self.seen:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come; the screen shows:\n{self.seen}"
            self.seen += os.read(self._end, 65536).decode(errors="replace")
        text, self.seen = self.seen.split(wanted, 1)
        return text + wanted

    def is_as_before(self) -> bool:
        """Whether the terminal's settings are what they were."""
        return termios.tcgetattr(self._inner) == self.settings

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self._end)
        os.close(self._inner)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal(NO_COLOR="1")
    yield opened
    opened.close()


@pytest.mark.promise("P1", "P3")
def test_escape_stops_a_stream_and_the_conversation_goes_on(terminal: Terminal) -> None:
    terminal.read_until("Before I promise")
    terminal.press(b"\x1b[A")  # an arrow key is not Esc
    terminal.read_until("whether the old")
    terminal.press(ESC)
    receipt = terminal.read_until("Ctrl-D to leave.")
    assert "was stopped (user: Esc was pressed)" in receipt
    assert "while the model was answering" in receipt
    assert "nothing is left running" in receipt
    terminal.read_until("you    ")
    assert terminal.is_as_before()
    terminal.press(b"more butter\n")
    assert '"more butter" - noted' in terminal.read_until("I begin now.")
    terminal.press(ESC)
    terminal.read_until("Ctrl-D to leave.")
    terminal.read_until("you    ")
    terminal.press(CTRL_D)
    terminal.read_until("At rest.")
    assert terminal.child.wait(10) == 0
    assert terminal.is_as_before()


@pytest.mark.promise("P1", "P4")
def test_ctrl_c_lets_tools_finish_and_a_second_one_does_not(terminal: Terminal) -> None:
    terminal.read_until("heat_oven: 40")
    terminal.press(CTRL_C)
    terminal.read_until("Ctrl-C again: stop them now.")
    terminal.press(CTRL_C)
    receipt = terminal.read_until("Ctrl-D to leave.")
    assert "was stopped (signal: SIGINT)" in receipt
    assert "check_weather: cancelled while running" in receipt
    assert "heat_oven: abandoned, may still be running" in receipt
    terminal.read_until("you    ")
    terminal.read_until("Later: heat_oven, which was abandoned, ended")  # while the person thinks
    terminal.press(CTRL_C)
    terminal.read_until("At rest.")
    assert terminal.child.wait(10) == 0
    assert terminal.is_as_before()


@pytest.mark.promise("P8")
def test_colours_are_for_terminals_that_want_them() -> None:
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal(**environment)
        try:
            title = terminal.read_until("What should we bake?")
            assert ("\x1b[1m" in title) is coloured
        finally:
            terminal.close()


@pytest.mark.promise("P3", "P6")
@pytest.mark.skipif(not is_available(), reason="quiesce[local] is not installed: no real model to stop")
def test_a_real_model_is_stopped_first_or_the_demo_says_why_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quiesce.demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stopped = "was stopped (user: enough of that)" in done.stdout
    assert stopped or "is not available here" in done.stdout
    assert "was stopped (user: half way)" in done.stdout
