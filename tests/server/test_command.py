"""`quiesce serve` and `quiesce key` as commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.cli import main
from quiesce.server import Keys
from quiesce.server.keys import keys_from_file

pytestmark = pytest.mark.feature


def test_key_prints_the_key_and_keeps_a_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "keys"
    assert main(["key", "ann", "--key-file", str(file)]) == 0
    key = capsys.readouterr().out.strip()
    assert Keys(keys_from_file(file)).owner(key) == "ann"
    assert main(["key", "ann", "--key-file", str(file)]) == 1
    assert "already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["serve", "nowhere_at_all:agent"], "cannot be loaded"),
        (["serve", "os:sep"], "not an Agent"),
        (["serve", "tests.server.support:talker", "--host", "0.0.0.0"], "no API keys"),
        (["serve", "tests.server.support:talker", "--key-file", "/nowhere/at/all"], "cannot be read"),
        (["serve", "tests.server.support:talker", "--deps", "nowhere_at_all:deps"], "cannot be loaded"),
        (["serve", "tests.server.support:talker", "--deps", "os:sep"], "not a function"),
        (["serve", "tests.server.support:counter"], "needs deps of type int"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(arguments, why, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("QUIESCE_API_KEYS", raising=False)
    assert main(arguments) == 1
    assert why in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert "serve" in capsys.readouterr().out
