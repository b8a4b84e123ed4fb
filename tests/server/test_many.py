"""Many runs with many readers, and readers that do not read."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel
from quiesce.server import Settings

from .support import free_port, read_events, serving, start
from .swarm import Swarm

pytestmark = pytest.mark.promise("P5", "P8")


def storyteller() -> Agent:
    """Begins at once, then says a little every second."""
    return Agent(ScriptedModel(then=[Say("Once upon a time", chunk=16), Say("and then " * 3600, chunk=9, pause=1.0)]))


def test_fifty_runs_with_fifty_readers_leave_nothing():
    settings = Settings(max_runs_per_key=100)

    async def main(served) -> Swarm:
        swarm = Swarm("127.0.0.1", served.port, 50)
        await swarm.start_all()
        streams = await swarm.open_all()
        await swarm.finish(streams)
        return swarm

    with serving(storyteller(), settings=settings) as served, served.client() as client:
        swarm = asyncio.run(main(served))
        assert sorted(swarm.ended.values()) == ["dropped"] * 25 + ["stopped"] * 25
        services = served.app.services
        while served.do(
            lambda: services.quotas.open_streams
        ):  # the server learns of a dropped connection from its socket
            served.pause(0.01)
        states = {run["id"]: run["state"] for run in client.get("/runs").json()["runs"]}
        for run_id, how in swarm.ended.items():
            assert states[run_id] == ("ended" if how == "stopped" else "running")
            if how == "dropped":  # its grace has begun; whoever comes back in time can still stop it
                assert client.post(f"/runs/{run_id}/cancel?wait=10").json()["receipt"]["still_running"] == []
        assert served.do(lambda: len(services.runs.active)) == 0
        assert all(run.readers.count == 0 for run in services.runs.newest_first("local"))


def test_a_reader_that_does_not_read_harms_nobody(monkeypatch):
    monkeypatch.setattr("quiesce.conversation.answer._LONGEST_ANSWER", 10_000_000)  # more than a kernel buffers
    words = "so it went on and on, " * 400_000
    agent = Agent(ScriptedModel(then=[Say(words, chunk=2000)]))
    settings = Settings(send_timeout=0.5, log_bytes=64 << 20)
    with serving(agent, settings=settings) as served, served.client() as client, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", served.port))
        run_id = start(client)
        deaf.sendall(f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        events = read_events(client, run_id)
        said = "".join(data["text"] for _, kind, data in events if kind == "text")
        assert said == words
        assert served.do(lambda: served.app.services.runs.get("local", run_id).status) == "ended"
        while served.do(lambda: served.app.services.quotas.open_streams):
            served.pause(0.05)
        while served.do(lambda: len(served.server.server_state.connections)) > 1:
            served.pause(0.05)
        assert client.get("/healthz").status_code == 200
        assert _all_that_arrived(deaf) < len(words)  # it was dropped in the middle


def _all_that_arrived(deaf: socket.socket) -> int:
    """How much comes before the connection is reset, or before nothing comes: a kernel may drop it without a word."""
    deaf.settimeout(5)
    arrived = 0
    with suppress(ConnectionResetError, TimeoutError):
        while part := deaf.recv(1 << 20):
            arrived += len(part)
    return arrived


AGENTS = """
from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel
agent = Agent(ScriptedModel(then=[Say("Once upon a time", chunk=16), Say("and then " * 3600, chunk=9, pause=1.0)]))
"""


def _kilobytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_thousand_runs_with_a_thousand_readers(tmp_path: Path, record_property):
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    (tmp_path / "agents.py").write_text(AGENTS)
    port = free_port()
    command = [sys.executable, "-m", "quiesce.cli", "serve", "agents:agent", "--port", str(port), "--drain", "20"]
    child = subprocess.Popen(
        [*command, "--max-runs", str(count), "--max-streams", str(count + 10), "--log-level", "info"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    files = Path(f"/proc/{child.pid}/fd")

    async def main() -> dict[str, object]:
        swarm = Swarm("127.0.0.1", port, count)
        await swarm.request("GET", "/runs")
        before, open_before = _kilobytes(child.pid), len(os.listdir(files))
        await swarm.start_all()
        streams = await swarm.open_all()
        full = _kilobytes(child.pid)
        begun = time.perf_counter()
        await end(swarm, streams)
        took = time.perf_counter() - begun
        after = _kilobytes(child.pid)
        again = Swarm("127.0.0.1", port, count, seed=8)
        await again.start_all()
        await end(again, await again.open_all())
        deadline = time.monotonic() + 30
        while len(os.listdir(files)) > open_before + 1 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert len(os.listdir(files)) <= open_before + 1
        growth = (_kilobytes(child.pid) - after) / count
        assert growth < 20, "the second thousand needs what the first has left"  # 15 to 17 of it are kept runs
        return {
            "runs": count,
            "kB per run with its reader": round((full - before) / count, 1),
            "kB more per run of a second thousand": round(growth, 1),
            "seconds to stop and drop all": round(took, 2),
        }

    async def end(swarm: Swarm, streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        await swarm.finish(streams)
        for run_id, how in swarm.ended.items():
            if how == "dropped":
                status, body = await swarm.request("POST", f"/runs/{run_id}/cancel?wait=30")
                assert status == 200
                assert json.loads(body)["receipt"]["still_running"] == []
        _, health = await swarm.request("GET", "/healthz")
        assert json.loads(health)["runs"] == 0

    try:
        assert child.stderr is not None
        next(line for line in child.stderr if "running on" in line)
        figures = asyncio.run(main())
        print(json.dumps(figures))
        record_property("figures", figures)
        child.terminate()
        assert child.wait(60) == 0
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
