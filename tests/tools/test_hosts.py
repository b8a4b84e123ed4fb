"""Killable tools in every kind of host: a bare script, the sync API, uvloop, a process that forks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import hazards
import oddities
import pytest
import uvloop
from hazards import survivors
from tool_runs import agent_with, call, results, stop_when, stray_processes

from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P5")


def run_script(tmp_path: Path, text: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    lines = run_script(
        tmp_path,
        """
import os
from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel

print("script")
FACTOR = 3

def helper(number):
    return number * FACTOR

@tool(on_stop="kill")
def compute(number: int) -> str:
    return f"{helper(number)} {os.getpid() != HOST}"

HOST = os.getpid()
agent = Agent(ScriptedModel([Call("compute", {"number": 4})], then="done"), tools=[compute])
print(agent("go").messages[2].results[0].text)
""",
    )
    assert lines == ["script", "12 True"]


def test_what_a_script_cannot_send_is_refused_in_words(tmp_path: Path) -> None:
    lines = run_script(
        tmp_path,
        """
from quiesce import Agent, tool
from quiesce.errors import InvalidTool
from quiesce.models.scripted import ScriptedModel

import threading

class Thing:
    lock = threading.Lock()

@tool(on_stop="kill")
def make() -> str:
    return str(Thing())

try:
    Agent(ScriptedModel("x"), tools=[make])
except InvalidTool as error:
    print(error)
""",
    )
    assert len(lines) == 1
    assert "'Thing', which make uses, cannot be sent" in lines[0]
    assert "Define it at the top of a module" in lines[0]


def test_a_forked_host_has_workers_of_its_own(tmp_path: Path) -> None:
    lines = run_script(
        tmp_path,
        f"""
import sys; sys.path[:0] = {[*sys.path, str(Path(hazards.__file__).parent)]!r}
import asyncio, os, oddities
from tool_runs import call
from quiesce.tools.tool import Tool

each = Tool(oddities.process_id, on_stop="kill")
mine = asyncio.run(call(each)).text
child = os.fork()
if child == 0:
    other = asyncio.run(call(each)).text
    print("child", other != mine, flush=True)
    sys.exit(0)
os.waitpid(child, 0)
print("parent", asyncio.run(call(each)).text == mine)
""",
    )
    assert lines == ["child True", "parent True"]


@pytest.mark.parametrize(
    "habit",
    [
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ],
    ids=["blocked", "ignored"],
)
def test_what_a_host_does_with_signals_is_its_own_affair(tmp_path: Path, habit: str) -> None:
    lines = run_script(
        tmp_path,
        f"""
import asyncio, signal, time
{habit}
from quiesce import Agent, ToolContext, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.builtin import make_shell

@tool(on_stop="kill", grace=1000)
def sleep(ctx: ToolContext) -> str:
    ctx.report("ready")
    time.sleep(10_000)

async def main():
    calls = [Call("sleep"), Call("shell", {{"command": "echo ready; sleep 10000"}})]
    run = Agent(ScriptedModel(calls, then="done"), tools=[sleep, make_shell(grace=1000)]).start("go")
    ready = set()
    async for event in run:
        if "ready" in str(getattr(event, "progress", "")):
            ready.add(event.name)
        if len(ready) == 2:
            run.cancel()
    print([str(call.outcome) for call in (await run).receipt.calls])

asyncio.run(main())
""",
    )
    assert lines == ["['killed', 'killed']"]


def test_the_sync_api(tmp_path: Path) -> None:
    agent = agent_with(Tool(oddities.speak, on_stop="kill"), calls=[Call("speak", {"words": "sync"})])
    assert results(agent("go"))["speak"].text == "sync"
    book = str(tmp_path / "book")
    agent = agent_with(Tool(hazards.sleep, on_stop="kill", grace=0.05), calls=[Call("sleep", {"book": book})])
    outcome = agent("go", timeout=0.5)
    assert outcome.receipt.cause is not None
    assert outcome.receipt.cause.source == "deadline"
    assert results(outcome)["sleep"].outcome is Outcome.KILLED
    assert survivors(book) == []


@pytest.mark.parametrize("hazard", [hazards.hold_interpreter, hazards.double_fork], ids=lambda each: each.__name__)
def test_uvloop(hazard, tmp_path: Path) -> None:
    async def main() -> None:
        assert (
            await call(Tool(oddities.speak, on_stop="kill", max_result=None), {"words": "x" * 500_000})
        ).text == "x" * 500_000
        book = str(tmp_path / "book")
        each = Tool(hazard, on_stop="kill", grace=0.05)
        outcome, _ = await stop_when(
            agent_with(each, calls=[Call(each.name, {"book": book})]), lambda run: run.cancel()
        )
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert survivors(book) == []
        assert stray_processes() == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.case("gemini-cli#28091")
def test_no_side_effect_after_ctrl_c(tmp_path: Path) -> None:
    import signal
    import time

    book = tmp_path / "book"
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import time
from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel

@tool(on_stop="kill", grace=0.1)
def write_for_ever() -> str:
    while True:
        try:
            with open({str(book)!r}, "a") as file:
                file.write("x")
            time.sleep(0.001)
        except BaseException:
            continue

try:
    Agent(ScriptedModel([Call("write_for_ever")], then="done"), tools=[write_for_ever])("go")
except KeyboardInterrupt:
    print(len(open({str(book)!r}).read()))
"""
    )
    host = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    while not (book.exists() and book.read_text()):
        time.sleep(0.01)
    host.send_signal(signal.SIGINT)
    output, _ = host.communicate(timeout=60)
    assert int(output) == len(book.read_text())
