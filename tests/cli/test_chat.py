"""`quiesce chat` on a full screen, with real keys."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def test_esc_again_forces() -> None:
    with chat("slow_tool") as shown:
        say(shown, "build it")
        shown.wait(r"build\(target='all'\).* 30%.*step 3")
        shown.wait(r"Esc stops build \(it has 30 s to end\)")
        shown.press("Escape")
        stopping = shown.wait(r"Stopping: waiting for build, \d+ s · Esc again forces it")
        assert "was stopped" not in stopping  # not before it is true
        shown.press("Escape")
        after = shown.wait(AT_REST)
        assert re.search(r"at rest .* mode kill", after)
        assert "✗ build(target='all')  cancelled while running" in after


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
        shown.wait("EXIT 0")


@pytest.mark.promise("P8")
def test_ctrl_c_once_leaves_nothing_and_is_forgotten() -> None:
    with chat("short") as shown:
        shown.press("C-c")
        shown.wait("Ctrl-C again leaves")
        shown.wait(AT_REST)  # the hint is itself again: this Ctrl-C is forgotten
        shown.press("C-c")
        shown.wait("Ctrl-C again leaves")
        say(shown, "hi")
        shown.wait("Hello there")


@pytest.mark.promise("P2", "P3")
def test_enter_while_running_steers() -> None:
    with chat("endless") as shown:
        say(shown, "tell me")
        shown.wait("Bread is")
        say(shown, "shorter please")
        after = shown.wait(lambda text: "Very well." in text and AT_REST in text)
        assert re.search(r"shorter please  steers", after)
        assert "was stopped" not in after  # it is one run
        assert "Bread is" in after


def test_tab_queues_and_a_stop_holds_the_queue() -> None:
    with chat("brief_wait") as shown:
        say(shown, "one")
        shown.wait("First.")
        shown.type("two")
        shown.press("Tab")
        shown.wait(r"queued: two")
        shown.wait(lambda text: "Second." in text and AT_REST in text)
    with chat("stalled") as shown:
        say(shown, "one")
        shown.wait("One moment")
        shown.type("two")
        shown.press("Tab")
        shown.wait(r"Tab queues · 1 queued")
        shown.press("Escape")
        held = shown.wait("1 queued: Enter sends the next")
        assert "Very well." not in held
        shown.press("Enter")
        shown.wait("Very well.")


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


def test_commands() -> None:
    with chat("slow_tool", height=60) as shown:
        say(shown, "build it")
        shown.wait("step 3")
        say(shown, "/ps")
        shown.wait(r"run [0-9a-f]{12}  acting\s+build  \d")
        say(shown, "/undo")
        shown.wait("A run is going on: stop it first")
        say(shown, "/stop build")
        shown.wait("Stopping build; the run goes on")
        say(shown, "/stop kill")
        shown.wait("Stop requested, mode kill")
        shown.wait(AT_REST)
        say(shown, "/usage")
        shown.wait(r"model calls +1")
        say(shown, "/undo")
        shown.wait(r"Removed \d+ messages from the conversation.")
        say(shown, "/sessions other")
        shown.wait("New session other")
        say(shown, "/sessions")
        shown.wait(r"main  0 messages\s+\* other  0 messages")
        say(shown, "/nonsense")
        shown.wait("There is no command /nonsense")
        say(shown, "/help")
        shown.wait("undo the last prompt and what its tools did")
        say(shown, "/quit")
        shown.wait("EXIT 0")


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


@pytest.mark.promise("P3")
def test_a_failure_is_shown_and_the_next_prompt_works() -> None:
    with chat("failing") as shown:
        say(shown, "hi")
        after = shown.wait(lambda text: "The key was refused" in text and AT_REST in text)
        assert "Failed" in after
        assert "I will" in after


@pytest.mark.parametrize(("answer", "outcome"), [("/approve", "a.txt is gone"), ("/deny not today", "not today")])
def test_a_tool_that_needs_approval_waits_for_it(answer: str, outcome: str) -> None:
    with chat("careful") as shown:
        say(shown, "clean up")
        shown.wait(r"delete\(path='a.txt'\) needs your approval: /approve, or /deny")
        asked = shown.wait("delete waits for your answer")
        assert "is gone" not in asked
        assert "-a.txt" in asked
        assert "+nothing\N{REPLACEMENT CHARACTER}[2J" in asked
        say(shown, answer)
        after = shown.wait(lambda text: "As you wish." in text and AT_REST in text)
        assert outcome in after
        assert ("is gone" in after) == (answer == "/approve")
        say(shown, "/undo")
        shown.wait("Removed 4 messages from the conversation")


@pytest.mark.promise("P4", "P5")
def test_what_was_left_behind_is_said_and_so_is_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = tmp_path / "go on"
    monkeypatch.setenv("GO_ON", str(go_on))
    with chat("digging") as shown:
        say(shown, "dig")
        shown.wait(r"Esc stops waiting for dig after 0.1 s \(it may go on\)")
        shown.press("Escape")
        after = shown.wait("At rest, but dig may still be running · Esc has nothing to stop")
        assert "abandoned, may still be running" in after
        say(shown, "/ps")
        shown.wait(r"run [0-9a-f]{12} abandoned: dig")
        go_on.touch()
        shown.wait(r"dig, which was abandoned, has finished after all, [\d.]+ s after the end: a hole")
        shown.wait(AT_REST)
        say(shown, "/ps")
        shown.wait("Nothing is running.")


@pytest.mark.promise("P4")
def test_undo_takes_back_what_the_tools_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    monkeypatch.setenv("FILES", f"{one} {two}")
    with chat("writing", height=40) as shown:
        say(shown, "write them")
        shown.wait(lambda text: "All written." in text and AT_REST in text)
        assert one.exists()
        assert two.exists()
        say(shown, "/undo")
        shown.wait("Removed 4 messages from the conversation")
        after = shown.text
        assert after.count("write: undone") == 2
        assert "mail: has no undo, what it did stays done" in after
        assert not one.exists()
        assert not two.exists()
        say(shown, "/undo")
        shown.wait("There is nothing to undo.")


@pytest.mark.promise("P1", "P4")
def test_esc_stops_an_undo_and_the_conversation_keeps_what_is_not_undone() -> None:
    with chat("booking", height=40) as shown:
        say(shown, "book them")
        shown.wait(lambda text: "Booked." in text and AT_REST in text)
        say(shown, "/undo")
        shown.wait("Undoing · Esc stops that; what is not undone then stays")
        say(shown, "and then")  # not lost, and not said into the middle of it
        shown.wait("queued: and then")
        shown.press("Escape")
        after = shown.wait("Not all of it is undone, so the conversation keeps it")
        assert re.search(r"(?s)book: not known whether it is undone:.*Esc\)", after)
        assert re.search(r"book: not undone: The undo was stopped \(.*Esc\)", after)
        shown.wait("1 queued: Enter sends the next · At rest: Esc has nothing to stop")


@pytest.mark.promise("P4")
def test_an_undo_that_failed_says_so_and_once_more_takes_the_messages() -> None:
    with chat("failing_undo") as shown:
        say(shown, "book it")
        shown.wait(lambda text: "Booked." in text and AT_REST in text)
        say(shown, "/undo")
        shown.wait("book: the undo failed: .*the hotel does not answer")
        shown.wait("/undo again removes the messages")
        say(shown, "/undo")
        shown.wait("Removed 4 messages from the conversation")


@pytest.mark.promise("P9")
def test_sessions_of_a_store_are_listed_opened_and_gone_on_with(tmp_path: Path) -> None:
    where = f"--store {tmp_path / 'chats.db'}"
    with chat("short", more=f"{where} --session bread") as shown:
        say(shown, "how is bread made?")
        shown.wait("Hello there.")
        shown.wait(AT_REST)
        say(shown, "/sessions soup")
        shown.wait("New session soup.")
        say(shown, "and soup?")
        shown.wait("And again.")
        shown.wait(AT_REST)
        say(shown, "/quit")
        shown.wait("EXIT 0")
    with chat("short", more=f"{where} --session bread") as shown:
        shown.wait(r"Session bread goes on.\s+you: how is bread made\?\s+agent: Hello there.")
        say(shown, "/sessions")
        listed = shown.wait(r"\* bread  2 messages\s+soup  2 messages  \d{4}-\d\d-\d\d")
        assert "main" not in listed
        say(shown, "/sessions soup")
        shown.wait(r"Back in session soup.\s+you: and soup\?")
        say(shown, "more of it")
        shown.wait("12 in, 3 out")
        shown.wait(AT_REST)
        say(shown, "/sessions")
        shown.wait(r"\* soup  4 messages")
        say(shown, "/undo")
        shown.wait("The saved conversation keeps its messages.")
