"""SIGTERM: no new runs, the ones that run are brought to rest, every receipt is written, exit code 0."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import Settings

from .support import endless, frames, free_port, read_events, serving, start, wait_for_text

pytestmark = pytest.mark.promise("P1", "P5")

AGENTS = """
import asyncio
from quiesce import Agent, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

@tool(on_stop="finish", grace=60)
async def stubborn() -> str:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

patient = Agent(ScriptedModel(then=[Say("almost ", pause=0.2), Say("done.")]), name="patient")
stalled = Agent(ScriptedModel(then=[Say("It began"), Stall()]), name="stalled")
busy = Agent(ScriptedModel(then=[Call("stubborn")]), tools=[stubborn], name="busy")
"""


@contextmanager
def process(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """`quiesce serve` in a process of its own."""
    (tmp_path / "agents.py").write_text(AGENTS)
    port = free_port()
    command = [sys.executable, "-m", "quiesce.cli", "serve", "agents:patient", "agents:stalled", "agents:busy"]
    child = subprocess.Popen(
        [*command, "--port", str(port), *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert child.stderr is not None
        for line in child.stderr:
            if "running on" in line:
                break
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield child, client
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_sigterm_drains_and_every_receipt_is_written(tmp_path: Path):
    receipts = tmp_path / "receipts.jsonl"
    with process(tmp_path, "--drain", "4", "--receipts", str(receipts)) as (child, client):
        ids = {name: start(client, agent=name) for name in ("patient", "stalled", "busy")}
        wait_for_text(client, ids["stalled"])
        with client.stream("GET", f"/runs/{ids['busy']}/events") as response:
            next(event for event in frames(response.iter_lines()) if event[1] == "tool_started")
        child.send_signal(signal.SIGTERM)
        while (health := client.get("/healthz")).status_code == 200:
            time.sleep(0.01)
        assert health.json()["status"] == "draining"
        refused = client.post("/runs", json={"prompt": "x"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        # While it drains, it still shows and tells: the stream goes on to the run's end.
        last = read_events(client, ids["busy"])[-1]
        assert last[1] == "run_ended"
        assert child.wait(20) == 0
    written = [json.loads(line) for line in receipts.read_text().splitlines()]
    by_id = {each["receipt"]["run_id"]: each["receipt"] for each in written}
    assert set(by_id) == set(ids.values())
    assert by_id[ids["patient"]]["stop_reason"] == "end_turn"
    assert by_id[ids["stalled"]]["cause"]["source"] == "shutdown"
    assert by_id[ids["stalled"]]["mode"] == "now"
    assert by_id[ids["busy"]]["mode"] == "kill"
    assert by_id[ids["busy"]]["calls"][0]["outcome"] == "abandoned"
    assert by_id[ids["busy"]]["still_running"]


def test_a_second_signal_hurries(tmp_path: Path):
    with process(tmp_path, "--drain", "600") as (child, client):
        run_id = start(client, agent="stalled")
        wait_for_text(client, run_id)
        child.send_signal(signal.SIGINT)
        while client.get("/healthz").status_code == 200:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        assert read_events(client, run_id)[-1][2]["receipt"]["mode"] == "kill"
        assert child.wait(20) == 0


def test_after_turn_lets_a_turn_finish_during_the_drain():
    async def run_tool() -> str:
        await asyncio.sleep(0.2)
        return "done"

    agent = Agent(ScriptedModel([Call("run_tool")], then="never"), tools=[tool(run_tool)])
    with serving(agent, settings=Settings(drain=20)) as served, served.client() as client:
        run_id = start(client)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            events = frames(response.iter_lines())
            next(event for event in events if event[1] == "tool_started")
            served.do(served.server.drain)
            last = list(events)[-1][2]
        assert last["receipt"]["calls"][0]["outcome"] == "completed"
        assert last["receipt"]["mode"] == "after_turn"
        assert last["stop_reason"] == "cancelled"


def test_nothing_is_left_when_a_server_ends_with_open_streams():
    with serving(endless()) as served, served.client() as client:
        for _ in range(5):
            run_id = start(client)
            wait_for_text(client, run_id)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            events = frames(response.iter_lines())
            next(events)
            served.do(served.server.drain)
            served.do(served.server.drain)
            assert list(events)[-1][1] == "run_ended"
