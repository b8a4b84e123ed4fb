"""`quiesce run` and what a run asks a person: in the same command, or in a later one."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from .test_run import ROOT, argv, run

pytestmark = pytest.mark.promise("P2", "P7")


def test_a_waiting_run_says_what_it_waits_for_and_how_to_go_on(tmp_path: Path) -> None:
    kept = ("--session", "s", "--store", str(tmp_path / "s.db"))
    waiting = run("deletes", "Clean up.", *kept)
    assert waiting.returncode == 4
    assert "delete(path='old.txt') needs approval." in waiting.stderr
    assert "the same command with --session s; --approve, --deny or --ask, and no prompt" in waiting.stderr
    approved = run("deletes", *kept, "--approve")
    assert (approved.returncode, approved.stdout) == (0, "Done: old.txt is gone.\n")
    nothing = run("deletes", *kept, "--approve")
    assert nothing.returncode == 2
    assert "Session 's' waits for no approval." in nothing.stderr
    again = run("deletes", "And now?", *kept)
    assert again.returncode == 0


def test_without_a_session_it_is_answered_in_the_same_command_or_not_at_all() -> None:
    waiting = run("deletes", "Clean up.")
    assert waiting.returncode == 4
    assert "It was not kept." in waiting.stderr
    assert run("deletes", "Clean up.", "--approve").stdout == "Done: old.txt is gone.\n"
    assert run("deletes", "Clean up.", "--deny").stdout.startswith("Done: Not run")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("y\n", "Done: old.txt is gone."),
        ("n\n", "Done: Not run"),
        ("keep it\n", "keep it"),
        ('e\nno\n{"path": "new.txt"}\n', "new.txt is gone"),
    ],
)
def test_on_a_terminal_each_question_is_asked(typed: str, said: str) -> None:
    outer, inner = pty.openpty()
    try:
        asking = subprocess.Popen(
            argv("deletes", "Clean up.", "--ask"),
            cwd=ROOT, stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        os.write(outer, typed.encode())
        out, err = asking.communicate(timeout=60)
    finally:
        os.close(inner)
        os.close(outer)
    assert asking.returncode == 0, err
    assert "delete(path='old.txt') needs approval." in err
    assert said in out


def test_what_makes_no_sense_is_refused_before_anything_starts() -> None:
    for arguments, why in (
        (("--ask", "Hi."), "--ask needs a terminal"),
        (("--store", "x.db", "Hi."), "--store needs a session"),
        (("--approve", "--deny", "Hi."), "not allowed with"),
    ):
        refused = run("short", *arguments)
        assert refused.returncode == 2
        assert why in refused.stderr
