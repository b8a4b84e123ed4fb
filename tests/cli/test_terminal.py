"""`quiesce chat` in a real terminal, with real keys and signals. What needs no terminal is in test_chat."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .tmux import Screen, needs_tmux, screen, wait_for_end

pytest.importorskip("textual")
pytestmark = [needs_tmux, pytest.mark.promise("P4")]

AT_REST = "At rest: Esc has nothing to stop"


@contextmanager
def chat(agent: str, width: int = 100, height: int = 30, more: str = "") -> Iterator[Screen]:
    with screen(f"chat --agent tests.cli.agents:{agent} {more}", width, height) as shown:
        shown.wait(AT_REST)
        yield shown


def say(shown: Screen, line: str) -> None:
    shown.type(line)
    shown.press("Enter")


def draft(shown: str) -> str:
    """What is between the last two borders."""
    return re.findall(r"^ │ (.*?)\s*│ *$", shown, re.MULTILINE)[-1]


@pytest.mark.promise("P1", "P3")
@pytest.mark.case("claude-code#6643", "claude-code#16905")
def test_esc_stops_the_answer_and_keeps_what_was_said_and_the_draft() -> None:
    with chat("endless") as shown:
        say(shown, "tell me")
        shown.wait("Esc stops the answer; the text so far stays")
        shown.wait("Bread is flour")
        shown.type("a draft")
        shown.wait("a draft")
        shown.press("Escape")
        after = shown.wait(AT_REST)
        assert "was stopped (user: Esc)" in after
        assert "while the model was answering" in after
        assert "nothing is left running" in after
        assert "Bread is flour" in after
        assert draft(after) == "a draft"
        shown.press("Escape")  # nothing to stop: nothing happens
        shown.press("Enter")
        said = shown.wait("Very well.")
        assert re.search(r"\S a draft", said)
        assert draft(said) == ""


@pytest.mark.promise("P1")
def test_ctrl_c_stops_and_twice_at_rest_leaves() -> None:
    with chat("endless") as shown:
        say(shown, "tell me")
        shown.wait("Bread is")
        shown.press("C-c")
        shown.wait(r"was stopped \(user: Ctrl-C\)")
        shown.wait(AT_REST)
        shown.press("C-c")
        shown.wait("Ctrl-C again leaves")
        shown.press("C-c")
        left = shown.wait("EXIT 0")
        assert re.search(r"(?s)tell me.*Bread is.*was stopped \(user: Ctrl-C\)", left)  # in the scrollback


def test_resize_in_the_middle_of_a_run() -> None:
    with chat("slow_tool") as shown:
        say(shown, "build it")
        shown.wait("step 3")
        shown.type("my draft")
        shown.wait("my draft")
        shown.resize(44, 14)
        shown.wait(lambda text: "Esc stops build" in text and re.search(r"│ my draft {30,}│", text))
        shown.press("Escape")
        shown.wait("Esc again forces it: no more grace")  # where there is room for one thing, this is it
        shown.resize(120, 40)
        shown.wait("Esc again forces it: no more grace")
        shown.press("Escape")
        after = shown.wait(lambda text: AT_REST in text and "my draft" in text)
        assert "was stopped (user: Esc)" in after


@pytest.mark.promise("P5")
@pytest.mark.parametrize("how", ["SIGTERM", "hang up"])
def test_it_ends_with_its_terminal_and_on_sigterm(how: str) -> None:
    with chat("endless") as shown:
        say(shown, "tell me")
        shown.wait("Bread is")
        pid = shown.pid()
        if how == "SIGTERM":
            os.kill(pid, signal.SIGTERM)
            shown.wait("EXIT 143")
        else:
            shown.hang_up()
        wait_for_end(pid)


@pytest.mark.promise("P1", "P5")
def test_a_second_sigterm_does_not_wait_for_the_grace() -> None:
    with chat("slow_tool") as shown:
        say(shown, "build it")
        shown.wait("step 3")
        os.kill(shown.pid(), signal.SIGTERM)
        shown.wait("Stopping: waiting for build")
        os.kill(shown.pid(), signal.SIGTERM)
        shown.wait("EXIT 143", seconds=20)


def test_text_cannot_give_the_terminal_orders() -> None:
    with chat("hostile") as shown:
        say(shown, "hi")
        shown.wait("Before.*after")
        assert shown.title != "owned"
