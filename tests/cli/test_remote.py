"""`quiesce ps` and `quiesce stop` against a real server."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from quiesce import Agent, Tool, tool
from quiesce.cli import main
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.server import Settings
from quiesce.server.schemas import StartRun

from ..server.support import endless, free_port, serving, start, talker, two_keys, wait_for_text

pytestmark = pytest.mark.promise("P8")
QUIESCE = [sys.executable, "-m", "quiesce.cli"]


def test_ps_lists_what_runs_and_stop_stops_it(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(endless(name="teller")) as served, served.client() as client:
        first, second = start(client, "one\nstory"), start(client, "another")
        wait_for_text(client, first)
        wait_for_text(client, second)

        assert main(["ps", "--url", served.url]) == 0
        table = capsys.readouterr().out.splitlines()
        assert table[0].split() == ["RUN", "AGENT", "STATE", "AGE", "TOKENS", "PROMPT"]
        row = next(line for line in table if first in line)
        assert "teller" in row
        assert "streaming" in row
        assert row.endswith("one story")

        assert main(["stop", first[:8], "--wait", "20", "--reason", "enough", "--url", served.url]) == 0
        said = capsys.readouterr().out
        assert f"Run {first} was stopped (user: enough)." in said
        assert "nothing is left running" in said

        assert main(["ps", "--json", "--url", served.url]) == 0
        assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [second]
        assert main(["ps", "--all", "--url", served.url]) == 0
        assert "cancelled" in next(line for line in capsys.readouterr().out.splitlines() if first in line)

        assert main(["stop", first, "--url", served.url]) == 0  # at rest already: no harm
        capsys.readouterr()
        assert main(["stop", "--all", "--mode", "kill", "--wait", "--url", served.url]) == 0
        assert f"Run {second} was stopped" in capsys.readouterr().out
        assert main(["ps", "--url", served.url]) == 0
        assert "Nothing is running." in capsys.readouterr().out


def test_what_cannot_be_done_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(talker()) as served:
        assert main(["stop", "nosuchrun", "--url", served.url]) == 1
        assert "There is no run 'nosuchrun'." in capsys.readouterr().err
        with pytest.raises(SystemExit) as usage:
            main(["stop", "--url", served.url])
        assert usage.value.code == 2
    capsys.readouterr()
    assert main(["ps", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    said = capsys.readouterr().err
    assert "No answer from" in said
    assert "Traceback" not in said
    assert main(["ps", "--url", "nonsense"]) == 1
    assert capsys.readouterr().err


def test_keys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob, keys = two_keys()
    with serving(endless(), keys=keys) as served, served.client(ann) as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        monkeypatch.setenv("QUIESCE_URL", served.url)
        assert main(["ps"]) == 1
        assert capsys.readouterr().err
        assert main(["stop", run_id, "--key", bob]) == 1  # somebody else's
        said = capsys.readouterr()
        assert "There is no run" in said.err
        assert bob not in said.err
        monkeypatch.setenv("QUIESCE_API_KEY", ann)
        assert main(["ps"]) == 0
        assert run_id in capsys.readouterr().out
        assert main(["stop", run_id, "--wait"]) == 0
        assert f"Run {run_id} was stopped" in capsys.readouterr().out


def booking(rooms: list[str]) -> Tool:
    """A tool that books rooms, and can give them back."""

    @tool
    async def book(room: str) -> str:
        rooms.append(room)
        return f"booked {room}"

    @book.undo
    async def unbook(room: str) -> None:
        rooms.remove(room)

    return book


@pytest.mark.promise("P4")
def test_stop_with_undo_takes_back_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    rooms: list[str] = []
    book = booking(rooms)
    agent = Agent(ScriptedModel([Call("book", {"room": "blue"})], [Say("Booked."), Stall()]), tools=[book])
    with serving(agent) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        assert rooms == ["blue"]
        assert main(["stop", run_id, "--undo", "--wait", "20", "--url", served.url]) == 0
        said = capsys.readouterr().out
        assert f"Run {run_id} was stopped" in said
        assert "book (call_1): undone" in said
        assert rooms == []


@pytest.mark.promise("P4")
def test_undo_of_a_run_that_is_at_rest_already(capsys: pytest.CaptureFixture[str]) -> None:
    rooms: list[str] = []
    book = booking(rooms)
    with serving(Agent(ScriptedModel([Call("book", {"room": "blue"})], "Booked."), tools=[book])) as served:
        with served.client() as client:
            run_id = start(client)
            served.at_rest(run_id)
        assert rooms == ["blue"]
        assert main(["stop", run_id, "--url", served.url]) == 0
        assert rooms == ["blue"]  # a stop that comes too late does nothing
        capsys.readouterr()
        assert main(["stop", run_id, "--undo", "--url", served.url]) == 0
        assert "book (call_1): undone" in capsys.readouterr().out
        assert rooms == []


def test_attach_follows_a_run_of_a_server_and_logs_has_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(endless("Once upon a time. ", name="teller")) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        assert main(["logs", run_id[:8], "--url", served.url]) == 0
        assert capsys.readouterr().out.startswith("Once upon a time. ")
        assert main(["logs", run_id, "--json", "--url", served.url]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
        assert main(["logs", run_id, "--after", str(len(lines)), "--url", served.url]) == 0
        assert capsys.readouterr().out == ""
        assert main(["stop", run_id, "--wait", "--url", served.url]) == 0
        capsys.readouterr()
        assert main(["attach", run_id, "--url", served.url]) == 0
        said = capsys.readouterr().out
        assert said.startswith("Once upon a time. ")
        assert f"Run {run_id} was stopped" in said


@pytest.mark.promise("P9")
def test_approve_shows_what_is_asked_and_answers_it(capsys: pytest.CaptureFixture[str]) -> None:
    built: list[int] = []

    @tool(requires_approval=True)
    async def build(number: int) -> str:
        built.append(number)
        return f"built {number}"

    agent = Agent(ScriptedModel([Call("build", {"number": 7})], then="Done."), tools=[build])
    with serving(agent) as served, served.client() as client:
        run_id = start(client)
        served.at_rest(run_id)
        assert main(["approve", run_id, "--url", served.url]) == 4  # there is no terminal to ask on
        said = capsys.readouterr().err
        assert "build(number=7) needs approval." in said
        assert "--approve" in said
        assert main(["approve", run_id, "--approve", "--url", served.url]) == 0
        going_on = capsys.readouterr().out.split(":")[0]
        assert main(["attach", going_on, "--url", served.url]) == 0
        assert "Done." in capsys.readouterr().out
        assert built == [7]
        assert main(["approve", going_on, "--deny", "--url", served.url]) == 1
        assert "asks nothing" in capsys.readouterr().out


def test_the_oldest_of_very_many_runs_is_found_and_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(max_runs_per_key=2000)
    with serving(endless(name="teller"), settings=settings) as served, served.client() as client:
        oldest = start(client)
        wait_for_text(client, oldest)
        starter = served.app.services.starter
        served.do(lambda: [starter.start("local", StartRun("x", timeout=0), None) for _ in range(1000)])
        for run in served.do(lambda: served.app.services.runs.newest_first("local")):
            if run.id != oldest:
                served.at_rest(run.id)
        assert main(["ps", "--url", served.url]) == 0
        assert oldest in capsys.readouterr().out
        assert main(["stop", oldest[:10], "--mode", "after_turn", "--url", served.url]) == 0
        assert f"{oldest}: stopping" in capsys.readouterr().out
        assert main(["stop", "--all", "--wait", "--url", served.url]) == 0
        assert f"Run {oldest} was stopped" in capsys.readouterr().out


@pytest.mark.promise("P1")
def test_ctrl_c_at_a_question_leaves_it_open() -> None:
    @tool(requires_approval=True)
    async def build(number: int) -> str:
        return f"built {number}"

    agent = Agent(ScriptedModel([Call("build", {"number": 7})], then="Done."), tools=[build])
    with serving(agent) as served, served.client() as client:
        run_id = start(client)
        served.at_rest(run_id)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [*QUIESCE, "approve", run_id, "--ask", "--url", served.url])
        read_until(terminal, b"a reason for no): ")
        os.write(terminal, b"\x03")
        said = read_until(terminal, None)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
        assert b"Traceback" not in said
        assert client.get(f"/runs/{run_id}").json()["run"]["interrupts"]


def read_until(terminal: int, wanted: bytes | None) -> bytes:
    """Read up to some words, or to the end."""
    said = b""
    with suppress(OSError):  # the end of a terminal
        while wanted is None or wanted not in said:
            piece = os.read(terminal, 4096)
            if not piece:
                break
            said += piece
    return said


@pytest.mark.promise("P1")
def test_ctrl_c_while_a_stop_is_waited_for_ends_the_command() -> None:
    with serving(endless(name="teller")) as served, served.client() as client:
        run_id = start(client)
        wait_for_text(client, run_id)
        command = [*QUIESCE, "stop", run_id, "--mode", "after_turn", "--wait", "60", "--url", served.url]
        with client.stream("GET", "/events") as changes, subprocess.Popen(command, stderr=subprocess.PIPE) as stopping:
            next(line for line in changes.iter_lines() if '"state":"stopping"' in line)
            stopping.send_signal(signal.SIGINT)
            assert stopping.stderr is not None
            assert stopping.stderr.read().strip() == b""
        assert stopping.returncode == 130
