"""What a worker process is made of: little, because what a tool forks has all of it, and takes longer to end."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace

import oddities
import pytest
from tool_runs import call, run_async

from quiesce.processes import supervisor
from quiesce.processes.loaded_types import is_a
from quiesce.tools.tool import Tool
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P1")

HEAVY = ("asyncio", "msgspec", "pydantic", "ssl", "hashlib", "inspect", "quiesce.events", "quiesce.tools.tool")


@pytest.mark.parametrize("function", [oddities.loaded, oddities.loaded_with_context])
def test_a_worker_imports_nothing_that_the_tool_does_not_need(function) -> None:
    pool.shut_down()  # a worker of an earlier test may have imported more
    result = run_async(call(Tool(function, on_stop="kill"), {"names": list(HEAVY)}))
    assert json.loads(result.text) == []


def test_the_grace_runs_from_the_stop_however_long_it_takes_to_tell_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def tell(*_: object) -> None:
        nonlocal now
        now += 3.0

    monkeypatch.setattr(supervisor, "terminate_tree", tell)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        kept = supervisor._Supervisor(theirs)
        kept._child = 1
        kept._stop(5.0)
        assert kept._kill_at == 105.0
        kept._stop(1.0)  # a later stop can only shorten it
        assert kept._kill_at == 104.0
        kept._wake.close()
        kept._woken.close()


def test_what_was_never_imported_has_no_instances() -> None:
    assert is_a(oddities.speak, "types", "FunctionType")
    assert not is_a("words", "types", "FunctionType")
    assert not is_a("words", "quiesce.never_imported", "Words")
