"""No process that a tool of a served agent starts can find a secret of the server's, wherever it looks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..support.secret_probe import MARKER
from .support import free_port, read_events, start

pytestmark = [
    pytest.mark.promise("P4"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the probe looks around in /proc"),
]

KINDS = ("shell", "python", "sandboxed", "everything", "run_program", "mcp", "host", "dumpable", "killable")
PROBE = Path(__file__).parents[1] / "support" / "secret_probe.py"

AGENTS = """
import asyncio, ctypes, json, os, subprocess, sys
from quiesce import Agent, ToolContext, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.mcp import MCPServer
from quiesce.tools.builtin import make_python, make_shell

HERE = os.getcwd()
PROBE = os.path.join(HERE, "probe.py")
PYTHON = os.path.realpath(sys.executable)  # the virtual environment may lie below /tmp, which a sandbox has of its own
COMMAND = f"{PYTHON} {PROBE}"

@tool
async def run_program(ctx: ToolContext) -> str:
    return (await ctx.run_process([PYTHON, PROBE])).stdout

@tool
async def mcp() -> str:
    async with MCPServer.stdio(sys.executable, PROBE, "mcp") as server:
        agent = Agent(ScriptedModel([Call("look")], then="done"), tools=[server])
        result = await agent.invoke_async("go")
    return result.messages[2].results[0].text

@tool
async def host() -> str:
    "What the server itself has: its provider's key, and nothing of its users'."
    return json.dumps([os.environ.get("OPENAI_API_KEY"), os.environ.get("QUIESCE_API_KEYS")])

@tool
async def dumpable() -> str:
    return str(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))

@tool(on_stop="kill")
def killable() -> str:
    "Its own environment, and what there is in the processes around it."
    around = subprocess.run([PYTHON, PROBE], env={}, capture_output=True, text=True, check=True).stdout
    return json.dumps([os.environ.get("OPENAI_API_KEY"), os.environ.get("QUIESCE_API_KEYS"), json.loads(around)])

tools = {
    "shell": (make_shell(), {"command": COMMAND}),
    "python": (make_python(), {"code": f"import runpy; runpy.run_path({PROBE!r}, run_name='__main__')"}),
    "sandboxed": (make_shell(name="sandboxed", sandbox=True, cwd=HERE), {"command": COMMAND}),
    "everything": (make_shell(name="everything", inherit_env=True), {"command": COMMAND}),
    "run_program": (run_program, {}),
    "mcp": (mcp, {}),
    "host": (host, {}),
    "dumpable": (dumpable, {}),
    "killable": (killable, {}),
}
for name, (each, arguments) in tools.items():
    globals()[f"{name}_agent"] = Agent(ScriptedModel([Call(name, arguments)], then="done"), tools=[each], name=name)
"""


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    return {
        name: f"{MARKER}-{uuid.uuid4().hex}"
        for name in ("OPENAI_API_KEY", "QUIESCE_API_KEYS", "SOME_PASSWORD", "PGURL")
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> Iterator[str]:
    """`quiesce serve`, in a process that was started with secrets in its environment."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "agents.py").write_text(AGENTS)
    shutil.copy(PROBE, folder / "probe.py")
    port = free_port()
    command = [sys.executable, "-m", "quiesce.cli", "serve", *(f"agents:{kind}_agent" for kind in KINDS)]
    child = subprocess.Popen(
        [*command, "--port", str(port)], cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, **secrets}
    )
    try:
        assert child.stderr is not None
        for line in child.stderr:
            if "running on" in line:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.communicate(timeout=60)


@pytest.fixture
def client(address: str, secrets: dict[str, str]) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {secrets['QUIESCE_API_KEYS']}"}
    with httpx2.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as made:
        yield made


def told(client: httpx2.Client, agent: str) -> Any:
    """What the agent's tool found."""
    run_id = start(client, agent=agent)
    read_events(client, run_id)  # to its end
    messages = client.get(f"/runs/{run_id}").json()["messages"]
    [result] = [result for message in messages for result in message.get("results", ())]
    assert not result.get("is_error"), result
    return json.loads("".join(block["text"] for block in result["content"]))


@pytest.mark.parametrize("kind", ["shell", "python", "sandboxed", "run_program", "mcp"])
def test_no_process_of_a_tool_finds_a_secret(client: httpx2.Client, kind: str):
    if kind == "sandboxed" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assert told(client, kind) == []


def test_the_probe_finds_what_there_is(client: httpx2.Client):
    found = told(client, "everything")
    assert {"env OPENAI_API_KEY", "env SOME_PASSWORD"} <= set(found)
    assert any(place.endswith("/environ") for place in found)


def test_the_server_has_its_own_keys_and_nobody_has_those_of_its_users(client: httpx2.Client, secrets: dict[str, str]):
    assert told(client, "host") == [secrets["OPENAI_API_KEY"], None]
    assert told(client, "killable") == [secrets["OPENAI_API_KEY"], None, []]


def test_other_processes_of_the_same_user_cannot_look_into_the_server(client: httpx2.Client):
    assert told(client, "dumpable") == 0
