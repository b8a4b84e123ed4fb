"""`quiesce run`: what scripts rely on."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec
import pytest

from quiesce.events import Event, RunEnded

from .tmux import ROOT

pytestmark = pytest.mark.promise("P7")
EVENT = msgspec.json.Decoder(Event)


def argv(agent: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "quiesce.cli", "run", "--agent", f"tests.cli.agents:{agent}", *arguments]


def run(agent: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(agent, *arguments), cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "quiesce.cli", *words]
    return subprocess.run(line, cwd=ROOT, input="", capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def running(agent: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv(agent, *arguments), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for each in (process.stdout, process.stderr):
            if each is not None:
                each.close()


def read_until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert process.stdout is not None
    seen = b""
    while wanted not in seen:
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, f"it ended after {seen!r}"
        seen += piece
    return seen


# --- How it ends ----------------------------------------------------------------------------------------------------


def test_finished_is_0_with_the_answer_alone_on_stdout() -> None:
    done = run("tools", "is it warm?")
    assert (done.returncode, done.stdout) == (0, "Let me look.\nIt is fine.\n")
    assert "ended by itself (end_turn)" in done.stderr
    assert "look: completed" in done.stderr
    assert "60 in, 13 out" in done.stderr


def test_quiet_and_a_prompt_from_a_pipe() -> None:
    done = run("short", "-q", stdin="hi\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello there.\n", "")
    assert run("short", "-q", "-", stdin="hi\n").returncode == 0


@pytest.mark.promise("P3")
def test_failed_is_1_and_says_why() -> None:
    done = run("failing", "hi")
    assert (done.returncode, done.stdout) == (1, "I will\n")
    assert "The key was refused." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("agent", "arguments"),
    [
        ("short", ["hi", "--timeout", "-1"]),
        ("short", ["hi", "--no-such-option"]),
        ("nobody", ["hi"]),
        ("short", ["  "]),
        ("short", ["hi", "--model", "openai:gpt-5.4-mini"]),
    ],
)
def test_bad_usage_is_2_and_nothing_is_started(agent: str, arguments: list[str]) -> None:
    done = run(agent, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.promise("P1", "P3")
def test_a_timeout_is_3() -> None:
    done = run("stalled", "hi", "--timeout", "0.2")
    assert (done.returncode, done.stdout) == (3, "One moment\n")
    assert "was stopped (deadline" in done.stderr


def test_a_question_to_a_person_is_4() -> None:
    done = run("careful", "clean up")
    assert (done.returncode, done.stdout) == (4, "I need to ask.\n")
    assert "(interrupt)" in done.stderr


@pytest.mark.promise("P1", "P3")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_a_stop_and_its_number_is_in_the_code(number: signal.Signals, code: int) -> None:
    with running("stalled", "hi") as process:
        read_until(process, b"One moment")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert out == b"\n"
    assert f"was stopped (signal: {number.name})".encode() in err
    assert b"kept      10 characters" in err


@pytest.mark.promise("P1", "P4")
def test_a_second_and_third_signal_are_more_urgent() -> None:
    with running("slow_tool", "hi", "--json") as process:
        read_until(process, b'"tool_progress"')
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        read_until(process, b'"stop_requested"')
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"build: cancelled while running" in err
    assert b"mode kill" in err


# --- Closed pipes ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("agent", ["endless", "stalled"])
def test_a_reader_that_leaves_is_a_stop_even_while_nothing_is_written(agent: str) -> None:
    with running(agent, "hi") as process:
        assert process.stdout is not None
        read_until(process, b"o")
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
    assert process.returncode == 141
    assert b"was stopped (disconnect: The reader closed the pipe)" in err
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


@pytest.mark.promise("P1")
def test_a_reader_that_does_not_read_does_not_hold_up_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is full, so the command waits in a write; the model's stream must be closed all the same."""
    closed = tmp_path / "closed"
    monkeypatch.setenv("CLOSED", str(closed))
    with running("flood", "hi", "--json") as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        wait_until(lambda: waiting_to_be_read(process.stdout) > 3900)
        process.send_signal(signal.SIGINT)
        wait_until(closed.exists)
        assert process.poll() is None  # it still waits for its reader
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b'"run_ended"' in out


def waiting_to_be_read(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- JSON lines -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P3")
def test_json_is_one_event_per_line_and_the_last_one_has_the_receipt() -> None:
    done = run("tools", "hi", "--json")
    assert done.returncode == 0
    events = [EVENT.decode(line) for line in done.stdout.splitlines()]
    end = events[-1]
    assert isinstance(end, RunEnded)
    assert end.stop_reason == "end_turn"
    assert [isinstance(each, RunEnded) for each in events].count(True) == 1
    assert "".join(each["text"] for each in map(json.loads, done.stdout.splitlines()) if each["type"] == "text") == (
        "Let me look.It is fine."
    )


# --- Terminals ------------------------------------------------------------------------------------------------------


def test_a_terminal_gets_no_orders_and_a_pipe_gets_the_text_as_it_is() -> None:
    assert "\x1b]0;owned\x07" in run("hostile", "hi").stdout
    outer, inner = pty.openpty()
    try:
        done = subprocess.run(
            argv("hostile", "hi", "-q"), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=inner, timeout=60, check=False
        )
        assert done.returncode == 0
        shown = os.read(outer, 4096)
    finally:
        os.close(inner)
        os.close(outer)
    assert b"\x1b" not in shown
    assert b"Before" in shown
    assert b"after" in shown


@pytest.mark.promise("P1", "P4")
def test_a_person_who_presses_ctrl_c_is_told_at_once_what_that_does() -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        argv("slow_tool", "hi"), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=inner
    )
    shown = b""

    def read_shown_until(wanted: bytes) -> None:
        nonlocal shown
        while wanted not in shown:
            shown += os.read(outer, 4096)

    try:
        read_shown_until(b"> build")
        process.send_signal(signal.SIGINT)
        read_shown_until(b"a tool that runs may finish. Ctrl-C again stops it too.")
        process.send_signal(signal.SIGINT)
        read_shown_until(b"Stopping now.")
        process.send_signal(signal.SIGINT)
        read_shown_until(b"was stopped (signal: SIGINT)")
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
        os.close(inner)
        os.close(outer)


def test_output_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        assert subprocess.run(argv("short", "hi", "-q"), cwd=ROOT, stdout=out, timeout=60, check=False).returncode == 0
    assert (tmp_path / "out").read_text() == "Hello there.\n"


@pytest.mark.promise("P1")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="NOT TESTED: there is no /dev/full here")
def test_a_full_disk_stops_the_run_and_is_1() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            argv("endless", "hi"), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert "The output could not be written: No space left on device." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_agent_may_stand_before_the_prompt_as_for_serve() -> None:
    done = command("run", "tests.cli.agents:short", "Hello", "--quiet")
    assert (done.returncode, done.stdout) == (0, run("short", "Hello", "--quiet").stdout)
    for words, sentence in (
        (
            ("--model", "x:y", "tests.cli.agents:short", "Hello"),
            "'tests.cli.agents:short' and --model both name an agent.",
        ),
        (("tell", "me", "more"), 'name the agent with --agent: quiesce run --agent MODULE:AGENT "prompt".'),
    ):
        refused = command("run", *words)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert sentence in refused.stderr
    told = command("chat", "tests.cli.agents:nobody")
    assert "'tests.cli.agents:nobody' cannot be loaded" in told.stderr


def test_a_word_too_many_is_refused_with_the_usage_of_that_command() -> None:
    refused = command("ps", "everything")
    assert refused.returncode == 2
    assert refused.stderr.startswith("usage: quiesce ps")
    assert refused.stderr.endswith("quiesce ps: error: unrecognized arguments: everything\n")
