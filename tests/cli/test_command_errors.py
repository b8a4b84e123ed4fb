"""What commands say about files, users and terminals that are not as expected: a sentence, no traceback."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quiesce import Session
from quiesce.cli import freeze, main
from quiesce.cli.main import make_parser

from .tmux import ROOT

pytestmark = pytest.mark.feature


def test_a_key_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nowhere" / "keys"
    assert main(["key", "ann", "--key-file", str(path)]) == 1
    assert f"The key file {path} cannot be written: No such file or directory." in capsys.readouterr().err


def test_a_key_in_the_place_of_its_hash_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys"
    path.write_text("qk_secretsecretsecretsecret\n")
    path.chmod(0o600)
    assert main(["serve", "tests.cli.agents:short", "--key-file", str(path)]) == 1
    said = capsys.readouterr().err
    assert "Line 1" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "words", [["import", "{gone}"], ["export", "mine", "-o", "{gone}/x"], ["backup", "{gone}/x/y/z"]]
)
def test_a_file_of_a_session(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from quiesce import Agent
    from quiesce.models.scripted import ScriptedModel

    store = tmp_path / "s.db"
    Agent(ScriptedModel(then="Hello."), session=Session("mine", store))("Hello")
    gone = tmp_path / "gone"
    assert main(["sessions", *(word.format(gone=gone) for word in words), "--store", str(store)]) == 1
    assert str(gone) in capsys.readouterr().err


def test_a_user_without_a_name_can_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    def getuser() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", getuser)
    options = make_parser().parse_args(["freeze", "--all", "--store", "postgresql://x"])
    assert freeze._who(options).startswith(f"{os.getuid()}@")


def quiesce(*words: str, encoding: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "quiesce.cli", *words]
    return subprocess.run(command, cwd=ROOT, input=given, env=environment, capture_output=True, timeout=60, check=False)


def test_a_terminal_without_some_characters_shows_others() -> None:
    told = quiesce("run", "-q", "--agent", "tests.cli.agents:foreign", "Hi.", encoding="ascii:strict")
    assert (told.returncode, told.stdout) == (0, b"Caf? done.\n"), told.stderr


def test_a_prompt_that_is_no_text() -> None:
    told = quiesce("run", "--agent", "tests.cli.agents:short", encoding="utf-8:strict", given=b"\xff")
    assert told.returncode == 2
    assert told.stderr.startswith(b"quiesce: The prompt on standard input is not text"), told.stderr
