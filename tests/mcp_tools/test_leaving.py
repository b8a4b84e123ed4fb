"""Clients that go away, and servers that are told to end: no run is left behind, and its receipt says why."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from .test_serving import SERVER, client_of, lines

STOPPED = {"stop_reason": "cancelled", "calls": ["cancelled"]}

# A client that calls, says when the run is under way, and waits.
CLIENT = """
import asyncio, sys
from mcp import Client

async def main():
    async with Client(sys.argv[1], mode=sys.argv[2]) as client:
        async def progress(_, __, message):
            if message.startswith("Running"):
                print(flush=True)
        print(await client.call_tool("helper", {"prompt": "wait"}, progress_callback=progress), flush=True)

asyncio.run(main())
"""


@contextmanager
def process(*arguments: str, **options):
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdout, child.stdin):
            if pipe is not None:
                pipe.close()


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("stdin", "disconnect"),
        (signal.SIGTERM, "shutdown"),
        pytest.param(signal.SIGINT, "shutdown", marks=pytest.mark.proof),
    ],
)
def test_a_server_over_stdio_ends_with_its_client_or_by_a_signal(how, cause: str, tmp_path: Path):
    log = tmp_path / "log"

    def say(**message: object) -> None:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()

    with process(SERVER, str(log), "--serve", "0", stdin=subprocess.PIPE) as server:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        say(id=1, method="initialize", params=about)
        server.stdout.readline()
        say(method="notifications/initialized")
        call = {"name": "helper", "arguments": {"prompt": "wait"}, "_meta": {"progressToken": 5}}
        say(id=2, method="tools/call", params=call)
        while "Running" not in server.stdout.readline():
            pass
        server.stdin.close() if how == "stdin" else server.send_signal(how)
        assert server.wait(20) == 0
    (line,) = asyncio.run(lines(log, 1))
    assert line == {**STOPPED, "cause": cause}


def until_it_listens(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.proof)])
@pytest.mark.parametrize("who", ["client", "server"])
def test_a_server_over_http_stops_the_runs_of_clients_that_are_gone_and_ends_by_a_signal(
    who: str, mode: str, tmp_path: Path
):
    log = tmp_path / "log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with process(SERVER, str(log), "--serve", str(port)) as server:
        until_it_listens(port)
        with process("-c", CLIENT, f"http://127.0.0.1:{port}/mcp", mode) as client:
            assert client.stdout.readline() == "\n"
            if who == "client":
                client.kill()
            else:
                server.send_signal(signal.SIGTERM)
                assert "Stopped (shutdown" in client.stdout.readline(), "the client hears why"
                assert server.wait(20) == 0
            (line,) = asyncio.run(lines(log, 1))
    # Since 2026-07-28 hanging up is how a call is cancelled.
    gone = "remote" if mode == "auto" else "disconnect"
    assert line == {**STOPPED, "cause": gone if who == "client" else "shutdown"}


@pytest.mark.promise("P4")
async def test_a_run_that_waits_for_a_person_is_not_called_finished(tmp_path: Path):
    async with client_of("stdio", tmp_path / "log") as client:
        answer = await client.call_tool("helper", {"prompt": "pay"})
        assert answer.is_error
        assert "Not finished: a person has to answer first: pay (approval)." in answer.content[0].text
        assert answer.structured_content["stop_reason"] == "interrupt"


@pytest.mark.promise("P8")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_one_of_many_calls_at_once_is_cancelled_and_the_others_are_answered(kind: str, tmp_path: Path):
    log = tmp_path / "log"
    async with client_of(kind, log) as client:
        started = asyncio.Event()

        async def progress(_, __, message):
            if message.startswith("Running"):
                started.set()

        one = asyncio.create_task(client.call_tool("helper", {"prompt": "wait"}, progress_callback=progress))
        await started.wait()
        others = [asyncio.create_task(client.call_tool("helper", {"prompt": f"No {n}"})) for n in range(10)]
        one.cancel()
        answers = await asyncio.gather(*others)
        assert [each.content[0].text for each in answers] == ["Answer 1."] * 10
        assert len({each.structured_content["conversation"] for each in answers}) == 10
        assert sum(line["cause"] == "remote" for line in await lines(log, 11)) == 1
