"""The commands of a fleet with `--json`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quiesce.cli import main

from ..sessions.conftest import Postgres

pytestmark = pytest.mark.feature


def test_freezes_caps_webhooks_workers_and_stops_are_json_lines(
    fleet_postgres: Postgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIESCE_STORE", fleet_postgres.new_database())

    def told(code: int, *command: str) -> list[dict[str, Any]]:
        assert main([*command, "--json"]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert told(0, "workers") == []
    (made,) = told(0, "freeze", "--agent", "teller", "--by", "ann\x9b")
    assert (made["agent"], made["stopped"]) == ("teller", [])
    assert told(0, "ps") == []
    (listed,) = told(0, "freeze", "--list")
    assert listed["frozen_by"] == "ann\x9b"
    assert told(1, "unfreeze", "--all") == []
    (released,) = told(0, "unfreeze", "--agent", "teller", "--by", "ben")
    assert (released["id"], released["released_by"]) == (made["id"], "ben")
    (cap,) = told(0, "cap", "--key", "ann", "--cost", "2.50")
    assert (cap["owner"], cap["cost"], cap["used"]["runs"]) == ("ann", "2.50", 0)
    assert told(0, "cap", "--key", "ann", "--remove") == []
    (hook,) = told(0, "webhook", "add", "https://example.com/hook", "--event", "run.lost")
    assert hook["secret"].startswith("whsec_")
    (shown,) = told(0, "webhook", "list")
    assert (shown["id"], shown["delivered"]) == (hook["id"], 0)
    assert "secret" not in shown
    assert told(0, "webhook", "remove", hook["id"]) == [{"id": hook["id"], "removed": True}]
    assert told(0, "stop", "--all") == []
