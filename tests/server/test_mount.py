"""Quiesce mounted in another application."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from quiesce import Agent
from quiesce.errors import UnknownMode
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.run.handle import Run
from quiesce.server import mount, stop_on_disconnect

from .support import free_port, read_events, start, talker, wait_for_text

pytestmark = pytest.mark.promise("P5", "P8")


@contextmanager
def running(app: Starlette) -> Iterator[str]:
    """Somebody's own uvicorn."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=5))
    ready = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


def test_a_mounted_agent_with_the_applications_own_users_and_lifespan():
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(_):
        seen.append("up")
        yield
        seen.append("down")

    def owner_of(request: Request) -> str | None:
        return request.headers.get("x-user")

    app = Starlette(lifespan=lifespan)
    inner = mount(app, talker(name="a"), "/ai", owner_of=owner_of)
    with running(app) as url, httpx2.Client(base_url=url + "/ai", headers={"X-User": "ann"}) as ann:
        run_id = start(ann)
        assert read_events(ann, run_id)[-1][1] == "run_ended"
        assert ann.get(f"/runs/{run_id}", headers={"X-User": "bob"}).status_code == 404
        assert httpx2.get(f"{url}/ai/runs").status_code == 401
        assert ann.get("/openapi.json").status_code == 200
    assert seen == ["up", "down"]
    assert inner.services.quotas.draining


def test_stop_on_disconnect_is_one_line():
    runs: list[Run] = []
    agent = Agent(ScriptedModel("Hello.", then=[Say("Once upon a time"), Stall()]))

    async def ask(request: Request) -> JSONResponse:
        run = agent.fork().start((await request.json())["prompt"])
        runs.append(run)
        stop_on_disconnect(request, run)
        result = await run
        return JSONResponse({"answer": result.text})

    async def stream(request: Request) -> StreamingResponse:
        run = agent.fork().start("go")
        runs.append(run)
        stop_on_disconnect(request, run)

        async def words():
            async for event in run:
                yield type(event).__name__ + "\n"

        return StreamingResponse(words())

    app = Starlette(routes=[Route("/ask", ask, methods=["POST"]), Route("/stream", stream)])
    with running(app) as url, httpx2.Client(base_url=url, timeout=20) as client:
        assert client.post("/ask", json={"prompt": "hi"}).json() == {"answer": "Hello."}
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/ask", json={"prompt": "hi"}, timeout=0.5)
        result = runs[1].wait(20)
        assert result.receipt.cause is not None
        assert result.receipt.cause.source == "disconnect"
        assert result.text == "Once upon a time"
        with client.stream("GET", "/stream") as response:
            next(response.iter_lines())
        assert runs[2].wait(20).stop_reason == "cancelled"
    assert runs[0].wait(1).stop_reason == "end_turn"


def test_a_mode_that_does_not_exist_is_said_at_once():
    async def main() -> None:
        run = talker().start("x")
        with pytest.raises(UnknownMode):
            stop_on_disconnect(Request({"type": "http"}), run, mode="softly")
        await run

    asyncio.run(main())


HOST = """
import uvicorn
from starlette.applications import Starlette
from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.server import Settings, mount
app = Starlette()
mount(app, Agent(ScriptedModel(then=[Say("It began"), Stall()])), "/ai", settings=Settings(drain=DRAIN))
uvicorn.run(app, port=PORT)
"""


@contextmanager
def hosted(folder: Path, *, drain: int) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client, str]]:
    """The server of another application with ours mounted in it, a client, and a run that has begun to answer."""
    port = free_port()
    (folder / "host.py").write_text(HOST.replace("PORT", str(port)).replace("DRAIN", str(drain)))
    child = subprocess.Popen([sys.executable, "host.py"], cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stderr is not None
        next(line for line in child.stderr if "running on" in line)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}/ai", timeout=30) as client:
            run_id = start(client)
            wait_for_text(client, run_id)
            yield child, client, run_id
        child.wait(20)
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_sigterm_to_the_application_ends_the_runs_and_so_their_streams(tmp_path: Path):
    with (
        hosted(tmp_path, drain=1) as (child, client, run_id),
        client.stream("GET", f"/runs/{run_id}/events") as response,
    ):
        lines = response.iter_lines()
        next(lines)
        child.send_signal(signal.SIGTERM)
        assert any(line == "event: run_ended" for line in lines)


@pytest.mark.promise("P1", "P7")
def test_a_client_can_stop_its_run_while_the_application_drains(tmp_path: Path):
    with hosted(tmp_path, drain=60) as (child, client, run_id):
        child.send_signal(signal.SIGTERM)
        while client.get("/healthz").status_code != 503:
            pass
        stopped = client.post(f"/runs/{run_id}/cancel?wait=20", json={"reason": "I am done"})
        assert stopped.status_code == 200
        assert stopped.json()["receipt"]["mode"] == "now"


WORKERS = """
from quiesce import Agent
from quiesce.models.scripted import ScriptedModel
from quiesce.server import create_app
app = create_app(Agent(ScriptedModel(then="Hello.")))
"""


@pytest.mark.promise("P8", "P4")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell which sockets a process listens on")
def test_two_processes_on_one_socket_are_refused_with_words(tmp_path: Path):
    (tmp_path / "two.py").write_text(WORKERS)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "two:app", "--workers", "2", "--port", str(port)]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stderr is not None
        assert any("Another process serves agents on the same socket" in line for line in child.stderr)
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=20).status_code == 200
    finally:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
