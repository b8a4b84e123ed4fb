"""A real Jupyter kernel: a cell that is interrupted stops its run, and the next cells go on with the agent."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ..support.programs import ROOT

pytestmark = [
    pytest.mark.proof,
    pytest.mark.leaves("files"),  # jupyter_client keeps the event loop of its synchronous API
    pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="`make proof` installs it"),
]
SETUP = "from tests.parts.notebook_cells import ended, make_agent; agent = make_agent()"
STREAM = "async for event in agent.stream_async('go'): pass"


class Kernel:
    """Runs cells, one at a time."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._client = manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, code: str, *, interrupt_at: str = "") -> tuple[str, str]:
        """What the cell printed, and the name of its error. It is interrupted when it has printed some word."""
        sent = self._client.execute(code)
        printed, error = "", ""
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            content = message["content"]
            match message["msg_type"]:
                case "stream":  # what another thread prints may come without the cell's id
                    printed += content["text"]
                    if interrupt_at and interrupt_at in printed:
                        interrupt_at = ""
                        self._manager.interrupt_kernel()
                case "error":
                    error = content["ename"]
                case "status":
                    if content["execution_state"] == "idle" and message["parent_header"].get("msg_id") == sent:
                        return printed.removeprefix("asked\n").strip(), error

    def close(self) -> None:
        self._client.stop_channels()


@contextmanager
def kernel() -> Iterator[Kernel]:
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(ROOT))
    found = None
    try:
        found = Kernel(manager)
        yield found
    finally:
        if found is not None:
            found.close()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        manager.context.destroy()


@pytest.mark.promise("P7", "P8")
@pytest.mark.parametrize(
    ("cell", "raised"),
    [
        pytest.param("result = agent('go')", "KeyboardInterrupt", id="sync"),
        pytest.param("result = await agent.invoke_async('go')", "CancelledError", id="async"),
        pytest.param(STREAM, "CancelledError", id="stream"),
        pytest.param("run = agent.start('go'); result = await run", "CancelledError", id="handle"),
    ],
)
def test_an_interrupted_cell_stops_its_run(cell: str, raised: str) -> None:
    with kernel() as notebook:
        assert notebook.run(SETUP) == ("", "")
        assert notebook.run(cell, interrupt_at="asked") == ("", raised)
        after = notebook.run("print(len(agent.active_runs), len(ended), ended[0].stop_reason, ended[0].still_running)")
        assert after == ("0 1 cancelled ()", "")
        assert notebook.run("print((await agent.invoke_async('and now?')).text)") == ("Fine.", "")
        assert notebook.run("print(agent('and now?').text)") == ("Fine.", "")
