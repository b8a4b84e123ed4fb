"""What people met elsewhere when they stopped an agent behind a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quiesce import Agent, Limits, tool
from quiesce.models.scripted import Call, ScriptedModel

from .support import endless, frames, read_events, serving, start, wait_for_text

HERE = Path(__file__).parent


@pytest.mark.promise("P4", "P5")
@pytest.mark.case("langgraphjs#2755")
def test_what_the_server_calls_cancelled_runs_no_further():
    done: list[int] = []

    @tool
    async def step(number: int) -> str:
        done.append(number)
        await asyncio.sleep(0.01)
        return "next"

    steps = [[Call("step", {"number": number})] for number in range(1000)]
    with (
        serving(Agent(ScriptedModel(*steps), tools=[step], limits=Limits(turns=None))) as served,
        served.client() as client,
    ):
        run_id = start(client)
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            next(event for event in frames(response.iter_lines()) if event[1] == "tool_ended")
        answer = client.post(f"/runs/{run_id}/cancel?wait=20").json()
        assert answer["receipt"]["stop_reason"] == "cancelled"
        so_far = len(done)
        served.pause(0.1)
        assert len(done) == so_far
        assert (
            served.do(lambda: [task.get_name() for task in asyncio.all_tasks() if "quiesce run" in task.get_name()])
            == []
        )


@pytest.mark.promise("P1", "P8")
@pytest.mark.case("adk-python#4796", "adk-python#2425", "adk-python#323")
def test_a_run_is_stopped_from_outside_by_its_id_alone():
    with serving(endless()) as served:
        with served.client() as starter:
            mine, other = start(starter), start(starter)
            wait_for_text(starter, mine)
            wait_for_text(starter, other)
        with served.client() as somebody_else:  # another connection, which knows nothing but the id
            answer = somebody_else.post(f"/runs/{mine}/cancel?wait=20", json={"reason": "from outside"}).json()
            assert answer["receipt"]["stop_reason"] == "cancelled"
            assert answer["receipt"]["cause"]["reason"] == "from outside"
            assert somebody_else.get(f"/runs/{other}").json()["run"]["state"] == "running"


@pytest.mark.promise("P1", "P8")
@pytest.mark.case("crewAI#3445", "agno#3106")
def test_a_run_is_stopped_from_another_process():
    with serving(endless()) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        command = [sys.executable, "-m", "quiesce.cli", "stop", run_id, "--wait", "20", "--url", served.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0
        assert f"Run {run_id} was stopped" in done.stdout
        shown = client.get(f"/runs/{run_id}").json()
        assert shown["run"]["stop_reason"] == "cancelled"


@pytest.mark.promise("P3", "P7")
@pytest.mark.case("vercel/ai#6502", "vercel/ai#18458")
def test_a_stream_that_can_be_resumed_can_be_stopped_too():
    with serving(endless("abcdefgh" * 8)) as served, served.client() as client:
        run_id = start(client, on_disconnect="continue")
        seen = wait_for_text(client, run_id)  # this reader leaves, and the run goes on
        assert client.get(f"/runs/{run_id}").json()["run"]["state"] == "running"
        with client.stream("GET", f"/runs/{run_id}/events", headers={"Last-Event-ID": str(seen)}) as response:
            client.post(f"/runs/{run_id}/cancel")  # while it has resumed
            resumed = list(frames(response.iter_lines()))
        assert [kind for _, kind, _ in resumed].count("run_ended") == 1
        assert resumed[-1][2]["stop_reason"] == "cancelled"
        # And whoever resumes after the stop is told the same, to the letter.
        assert read_events(client, run_id, **{"Last-Event-ID": str(seen)}) == resumed


@pytest.mark.promise("P3", "P8")
def test_a_stop_in_one_window_is_seen_in_the_other():
    with serving(endless()) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        ended: list[str] = []

        def watch() -> None:
            with served.client() as other:
                ended.append(read_events(other, run_id)[-1][2]["stop_reason"])

        windows = [threading.Thread(target=watch) for _ in range(3)]
        for window in windows:
            window.start()
        client.post(f"/runs/{run_id}/cancel?wait=20")
        for window in windows:
            window.join(20)
        assert ended == ["cancelled"] * 3


@pytest.mark.promise("P1", "P5")
@pytest.mark.case("sse-starlette#173")
def test_a_client_whose_network_is_gone_is_noticed():
    command = [sys.executable, "-m", "tests.server.lost_network"]
    done = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, timeout=60, check=False)
    if "no network of one's own" in done.stdout:
        pytest.skip("NOT TESTED: a lost network needs a network namespace, and this machine allows none.")
    assert done.stdout.split() == ["cancelled", "disconnect"], done.stderr
