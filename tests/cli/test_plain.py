"""`quiesce chat` line by line: without textual, with --plain, and from a pipe."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import pytest

from quiesce.cli import chat_plain
from quiesce.cli.chat_backend import LocalBackend
from quiesce.cli.chat_controller import ChatController
from quiesce.cli.chat_plain import PlainChat

from .agents import careful
from .tmux import ROOT, needs_tmux, screen

pytestmark = pytest.mark.promise("P4")
PROGRAM = "import sys; sys.modules['textual'] = None; from quiesce.cli import main; sys.exit(main())"
WITHOUT_TEXTUAL = f"-c {shlex.quote(PROGRAM)}"


@needs_tmux
@pytest.mark.promise("P1", "P3")
def test_without_textual_ctrl_c_stops_and_twice_at_rest_leaves() -> None:
    with screen("chat --agent tests.cli.agents:endless", program=WITHOUT_TEXTUAL) as shown:
        shown.wait(r'pip install "quiesce\[tui\]"')
        shown.wait("^> ?$|\n> ?\n")
        shown.type("tell me")
        shown.press("Enter")
        shown.wait("Bread is")
        shown.press("C-c")
        after = shown.wait(r"was stopped \(user: Ctrl-C\)")
        assert "while the model was answering" in after
        shown.type("and now?")
        shown.press("Enter")
        shown.wait("Very well.")
        shown.wait(r"Very well\.\n> ?\n")
        shown.press("C-c")
        shown.wait("Ctrl-C again leaves.")
        shown.press("C-c")
        shown.wait("EXIT 0")


@needs_tmux
@pytest.mark.promise("P1")
def test_ctrl_c_again_forces_and_a_line_steers() -> None:
    with screen("chat --plain --agent tests.cli.agents:slow_tool") as shown:
        shown.type("build it")
        shown.press("Enter")
        shown.wait(r"> build\(target='all'\)")
        shown.press("C-c")
        shown.wait("Stopping: waiting for build.*Ctrl-C again forces it")
        shown.press("C-c")
        shown.wait("mode kill")
    with screen("chat --plain --agent tests.cli.agents:endless") as shown:
        shown.type("tell me")
        shown.press("Enter")
        shown.wait("Bread is")
        shown.type("shorter")
        shown.press("Enter")
        shown.wait("Very well.")


@pytest.mark.promise("P3")
def test_from_a_pipe_each_line_is_a_prompt() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quiesce.cli", "chat", "--agent", "tests.cli.agents:short"],
        cwd=ROOT,
        input="one\n\n/usage\n/sessions\ntwo\n/undo\nthree",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    hello, again = done.stdout.index("Hello there."), done.stdout.index("And again.")
    assert hello < done.stdout.index("model calls") < again
    assert "* main  2 messages" in done.stdout
    assert "Removed 2 messages from the conversation." in done.stdout
    assert done.stdout.count("And again.") == 2


@pytest.mark.promise("P1", "P5")
def test_sigterm_stops_the_run_and_leaves() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "quiesce.cli", "chat", "--agent", "tests.cli.agents:stalled"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hi\n")
    process.stdin.flush()
    seen = b""
    while b"One moment" not in seen:
        seen += os.read(process.stdout.fileno(), 4096)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert b"was stopped" in out
    assert err == b""


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ("y", "a.txt is gone"),
        ("n", "a person said no"),
        ("a", "always approved"),
        ('e\n{"path": "b.txt"}', "b.txt is gone"),
    ],
)
def test_one_letter_answers_an_approval(lines: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    shown = asyncio.run(_chat_with(f"clean up\n{lines}\n"))
    assert "needs your approval: y, n, e to edit, a for always" in shown
    assert outcome in shown
    assert "As you wish." in shown
    assert "\x1b" not in shown


async def _chat_with(lines: str) -> str:
    """What the chat prints for these lines of a pipe."""
    printed = io.StringIO()
    chat = PlainChat(ChatController(LocalBackend(careful())))
    with redirect_stdout(printed), monkeypatched_lines(chat, lines):
        await chat._chat()
    return printed.getvalue()


@contextmanager
def monkeypatched_lines(chat: PlainChat, lines: str) -> Iterator[None]:
    for line in (*lines.splitlines(), None):
        chat._lines.put_nowait(line)
    before, chat_plain._read_lines = chat_plain._read_lines, lambda *_: None
    try:
        yield
    finally:
        chat_plain._read_lines = before


@needs_tmux
def test_a_dumb_terminal_gets_the_plain_chat() -> None:
    with screen("chat --agent tests.cli.agents:short", program="-m quiesce.cli", term="dumb") as shown:
        shown.wait("short, scripted. /help; Ctrl-C stops.")
        shown.type("hi")
        shown.press("Enter")
        shown.wait("Hello there.")
