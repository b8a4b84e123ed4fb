"""`quiesce ps`, `stop`, `attach` and `workers` against the store of a fleet, without a server."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import httpx2
import pytest

from quiesce.cli import main
from quiesce.fleet import Fleet
from quiesce.sessions.stores.postgres import PostgresStore

from ..sessions.conftest import Postgres
from .processes import WorkerProcess

pytestmark = pytest.mark.promise("P1", "P8")


def in_fleet(url: str, prompts: list[str]) -> list[str]:
    async def start() -> list[str]:
        store = PostgresStore(url)
        async with Fleet(url, store) as fleet:
            runs = [await fleet.start("agent", prompt) for prompt in prompts]
            for run in runs:
                async for _, event in fleet.events(run.id):
                    if event.__struct_config__.tag == "text":
                        break
        await asyncio.wrap_future(store.close())
        return [run.id for run in runs]

    return asyncio.run(start())


def test_the_commands_work_against_the_store(
    fleet_postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fleet_postgres.new_database()
    monkeypatch.setenv("QUIESCE_STORE", url)
    assert main(["workers"]) == 0
    assert capsys.readouterr().out == "No workers.\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    worker = WorkerProcess(url, tmp_path / "witness", metrics=port)
    try:
        first, second = in_fleet(url, ["stall one", "stall two"])

        assert main(["workers", "--json"]) == 0
        (shown,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (shown["pid"], shown["running"], shown["draining"]) == (worker.process.pid, 2, False)
        assert main(["ps"]) == 0
        assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]} == {first, second}

        assert main(["stop", first[:8], "--wait", "20", "--reason", "enough"]) == 0
        said = capsys.readouterr().out
        assert f"{first}: at rest." in said
        assert f"Run {first} was stopped (user: enough)." in said
        assert main(["attach", first]) == 0
        assert "Waiting." in capsys.readouterr().out
        assert main(["stop", "--all", "--agent", "another"]) == 0
        assert capsys.readouterr().out == "The stop is accepted for 0 runs.\n"
        assert main(["stop", "--all", "--agent", "agent", "--wait"]) == 0
        assert "1 at rest, 0 not at rest" in capsys.readouterr().out
        assert main(["ps"]) == 0
        assert "Nothing is running." in capsys.readouterr().out
        assert main(["ps", "--all", "--json"]) == 0
        assert {json.loads(line)["stop_reason"] for line in capsys.readouterr().out.splitlines()} == {"cancelled"}
        assert main(["stop", "nosuchrun"]) == 1
        assert "There is no run 'nosuchrun'." in capsys.readouterr().err
        page = httpx2.get(f"http://127.0.0.1:{port}/metrics").text
        for name, count in (("queue_time", 2), ("stop_delivered", 2), ("stop_at_rest", 2)):
            (line,) = [each for each in page.splitlines() if each.startswith(f"quiesce_fleet_{name}_seconds_count")]
            assert 'gen_ai_agent_name="agent"' in line
            assert float(line.split()[-1]) == count
        assert worker.terminate() == 0
    finally:
        worker.close()
