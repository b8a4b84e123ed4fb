"""`quiesce serve` and `quiesce key` as commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quiesce.cli import main
from quiesce.errors import ConfigurationError
from quiesce.server import Keys, Settings
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
        (["serve", "tests.server.support:talker", "--port", "99999"], "There is no port 99999."),
        (["serve", "tests.server.support:talker", "--port", "-1"], "There is no port -1."),
        (["serve", "tests.server.support:talker", "--heartbeat", "0"], "Settings(heartbeat=0.0) makes no sense."),
        (["serve", "tests.server.support:talker", "--drain", "nan"], "Settings(drain=nan) makes no sense."),
        (["serve", "tests.server.support:talker", "--max-runs", "-1"], "Settings(max_runs_per_key=-1) makes no sense."),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(arguments, why, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("QUIESCE_API_KEYS", raising=False)
    assert main(arguments) == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        {"heartbeat": float("nan")}, {"heartbeat": "5"}, {"send_timeout": 0}, {"header_timeout": -1.0},
        {"body_timeout": 0}, {"drain": float("inf")}, {"max_wait": -1}, {"max_runs": True}, {"max_body": 1.5},
        {"keep_bytes": None}, {"on_disconnect": "stop"}, {"cors_origins": "https://a.example"}, {"operators": "ann"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"{next(iter(odd))}=")):
        Settings(**odd)
    Settings(drain=0, max_wait=0, keep_sessions=0, max_runs=0, heartbeat=1, keep_bytes=1 << 40)


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert "serve" in capsys.readouterr().out
