"""kill -9 of a server in the middle of its runs, and what the next one makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from quiesce.conversation.validity import faults
from quiesce.messages import Message

from .support import frames, free_port, read_events, start
from .swarm import Swarm

pytestmark = pytest.mark.promise("P2", "P9")

AGENTS = """
import asyncio
from quiesce import Agent, tool
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

@tool
async def pay(to: str) -> str:
    await asyncio.sleep(3600)

class Choosing(ScriptedModel):
    def stream(self, request):
        said = request.messages[-1].text
        if said.startswith("pay"):
            answer = [Say("Paying. "), Call("pay", {"to": said})]
        elif said.startswith("again"):
            answer = [Say("Here I am again.")]
        else:
            answer = [Say("Once upon a time in " + said), Stall()]
        return ScriptedModel(answer).stream(request)

agent = Agent(Choosing(), tools=[pay])
"""


@contextmanager
def process(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    (directory / "agents.py").write_text(AGENTS)
    port = free_port()
    command = [sys.executable, "-m", "quiesce.cli", "serve", "agents:agent", "--port", str(port), "--drain", "5"]
    child = subprocess.Popen(
        [*command, "--store", "sessions.db", "--max-runs", "200"], cwd=directory, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        next(line for line in child.stderr if "running on" in line)
        yield child, port
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


Frame = tuple[int, str, Any]


def _whole_frames(stream: bytes) -> list[Frame]:
    """The events in the beginning of an answer. The last one may be torn, and then was not read."""
    body = stream.partition(b"\r\n\r\n")[2]
    return list(frames(iter(body[: body.rfind(b"\n\n") + 2].decode().split("\n"))))


def _stands(seen: list[Frame], *, tool: bool) -> bool:
    """Whether the reader has been told of what must survive: that the tool has started, or the first words."""
    kinds = [kind for _, kind, _ in seen]
    return "tool_started" in kinds if tool else kinds.count("text") >= 3


async def _begin(port: int, count: int) -> dict[str, tuple[str, list[Frame]]]:
    """Start runs, and read of each until it stands: its session, and what was read."""
    swarm = Swarm("127.0.0.1", port, count)
    gate = asyncio.Semaphore(20)

    async def one(number: int) -> tuple[str, tuple[str, list[Frame]]]:
        prompt = f"pay-{number}" if number % 4 == 0 else f"land-{number}"
        async with gate:
            _, body = await swarm.request("POST", "/runs", {"prompt": prompt, "session": f"s{number}"})
            run_id = json.loads(body)["run"]["id"]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /runs/{run_id}/events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            text, seen = b"", list[Frame]()
            while not _stands(seen, tool=number % 4 == 0):
                text += await reader.read(65536)
                seen = _whole_frames(text)
            writer.close()
        return run_id, (f"s{number}", seen)

    return dict(await asyncio.gather(*(one(number) for number in range(count))))


def _crash_and_look(directory: Path, count: int) -> None:
    with process(directory) as (child, port):
        runs = asyncio.run(_begin(port, count))
        os.kill(child.pid, signal.SIGKILL)
        child.wait(20)
    with process(directory) as (child, port), httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        listed = {run["id"]: run for run in client.get("/runs?state=crashed&limit=1000").json()["runs"]}
        assert set(listed) == set(runs)
        for number, (run_id, (session, seen)) in enumerate(runs.items()):
            shown = client.get(f"/runs/{run_id}").json()
            messages = msgspec.convert(shown["messages"], tuple[Message, ...])
            assert faults(messages) == ()
            assert shown["run"]["stop_reason"] == "crashed"
            assert shown["run"]["session"] == session
            assert shown["run"]["prompt"] == messages[0].text
            if number % 4 == 0:
                assert [call["outcome"] for call in shown["receipt"]["calls"]] == ["unknown"]
            else:
                assert "Once upon" in messages[1].text
                # The request was sent, and what it used is not known: that is not 0.
                for usage in (shown["run"]["usage"], shown["receipt"]["usage"]):
                    assert usage["calls"] == 1
                assert shown["run"]["usage"]["output"]["value"] is None
                assert shown["run"]["usage"]["output"]["source"] == "unknown"
            # A reader that comes back goes on exactly where it was, and learns how the run ended.
            last = seen[-1][0]
            rest = read_events(client, run_id, **{"Last-Event-ID": str(last)})
            assert [each for each, _, _ in rest] == list(range(last + 1, last + 1 + len(rest)))
            assert [kind for _, kind, _ in rest].count("run_ended") == 1
            assert rest[-1][1] == "run_ended"
            assert rest[-1][2]["stop_reason"] == "crashed"
            # One that reads anew gets the same events, piece by piece, under the same numbers.
            assert read_events(client, run_id) == seen + rest
            assert read_events(client, run_id, **{"Last-Event-ID": str(rest[-1][0])}) == []
            if number % 4:
                said = "".join(event["text"] for _, kind, event in seen + rest if kind == "text")
                assert said == messages[1].content[0].text  # every word, once
        # And every one of them can be gone on with.
        for session, _ in runs.values():
            next_id = start(client, "again please", session=session)
            with client.stream("GET", f"/runs/{next_id}/events") as response:
                assert list(frames(response.iter_lines()))[-1][2]["stop_reason"] == "end_turn"
        assert client.get("/usage").json()["total"]["calls"] >= count
        assert len(client.get("/sessions").json()["sessions"]) == count
        assert client.delete("/sessions/s1").status_code == 204
        child.terminate()
        assert child.wait(30) == 0
    with process(directory) as (child, port), httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        states = [run["state"] for run in client.get("/runs?limit=1000").json()["runs"]]
        assert sorted(states) == ["crashed"] * (count - 1) + ["ended"] * (count - 1)
        ended = client.get("/runs?state=ended&limit=1").json()["runs"][0]
        assert client.get(f"/runs/{ended['id']}").json()["receipt"]["stop_reason"] == "end_turn"
        child.terminate()
        assert child.wait(30) == 0


def test_kill_9_in_the_middle_of_eight_runs(tmp_path: Path):
    _crash_and_look(tmp_path, 8)


@pytest.mark.proof
def test_kill_9_in_the_middle_of_a_hundred_runs(tmp_path: Path):
    _crash_and_look(tmp_path, 100)
