"""A real server on a free port, in a thread of its own, and clients for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.models.wire.certificates import certificates_for
from quiesce.server import Application, Keys, Settings, create_app, hash_key, new_key
from quiesce.server.listener import DrainingServer, server

LOCAL = "http://127.0.0.1"


class Served:
    """A server that listens. `do()` runs a function in its loop."""

    def __init__(self, app: Application, uvicorn_server: DrainingServer, port: int) -> None:
        self.app = app
        self.server = uvicorn_server
        self.port = port
        self.url = f"{LOCAL}:{port}"
        self.loop: asyncio.AbstractEventLoop | None = None

    def client(self, key: str | None = None, **options: Any) -> httpx2.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, verify=certificates_for(self.url), **{"timeout": 30, **options}
        )

    def async_client(self, key: str | None = None, **options: Any) -> httpx2.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=30, verify=certificates_for(self.url), **options
        )

    def do(self, function: Any) -> Any:
        """Call `function` in the server's loop and wait for what it returns."""
        assert self.loop is not None

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(30)

    def pause(self, seconds: float) -> None:
        """Wait until the server's own clock has moved on: its timers that were due have then been called."""
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(asyncio.sleep(seconds), self.loop).result(30)

    def at_rest(self, run_id: str, owner: str = "local") -> None:
        """Wait in the server, without reading any event, until a run is at rest."""
        assert self.loop is not None

        async def rest() -> None:
            run = self.app.services.runs.get(owner, run_id).run
            if run is not None:
                await run.stopped()

        asyncio.run_coroutine_threadsafe(rest(), self.loop).result(30)


@contextmanager
def serving(
    *agents: Agent, keys: Keys | None = None, settings: Settings | None = None, app: Application | None = None
) -> Iterator[Served]:
    """Serve until the block is left; then drain, and check that nothing is left in the server's loop."""
    app = app or create_app(*agents, settings=settings, keys=keys)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    uvicorn_server = server(app, port=port, log_level="error")
    served = Served(app, uvicorn_server, port)
    ready = threading.Event()
    left: list[str] = []

    async def main() -> None:
        served.loop = asyncio.get_running_loop()
        starting = asyncio.create_task(uvicorn_server.serve(sockets=[listener]))
        while not uvicorn_server.started and not starting.done():
            await asyncio.sleep(0.005)
        ready.set()
        await starting
        await asyncio.sleep(0)
        left.extend(task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="server under test")
    thread.start()
    try:
        assert ready.wait(20)
        yield served
    finally:
        assert served.loop is not None
        served.loop.call_soon_threadsafe(uvicorn_server.drain)
        served.loop.call_soon_threadsafe(uvicorn_server.drain)  # in a hurry
        thread.join(60)
        assert not thread.is_alive()
        listener.close()
    assert not left, f"left in the server's loop: {left}"


def two_keys() -> tuple[str, str, Keys]:
    """The keys of two people, and what the server keeps of them."""
    ann, bob = new_key(), new_key()
    return ann, bob, Keys({"ann": hash_key(ann), "bob": hash_key(bob)})


def talker(text: str = "Good morning.", **options: Any) -> Agent:
    """An agent that says something and is done."""
    return Agent(ScriptedModel(then=text), **options)


def counter() -> Agent[int, str]:
    """An agent that needs a number as its deps."""
    return Agent(ScriptedModel(then="Good morning."), deps_type=int)


def endless(text: str = "It was a dark and stormy night. ", **options: Any) -> Agent:
    """An agent that begins to speak, and never ends."""
    return Agent(ScriptedModel(then=[Say(text), Stall()]), **options)


def start(client: httpx2.Client, prompt: str = "Hello", **body: Any) -> str:
    """Start a run; its id."""
    response = client.post("/runs", json={"prompt": prompt, **body})
    assert response.status_code == 201, response.text
    return response.json()["run"]["id"]


def frames(lines: Iterator[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The events of a stream: number, type and data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield int(fields["id"]), fields["event"], json.loads(fields["data"])
            fields = {}
        else:
            fields = {}


def read_events(client: httpx2.Client, run_id: str, **headers: str) -> list[tuple[int, str, dict[str, Any]]]:
    """All events of a run, to its end; none for a reader that has seen the end."""
    with client.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        if headers and response.status_code == 204:
            return []
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(frames(response.iter_lines()))


def wait_for_text(client: httpx2.Client, run_id: str) -> int:
    """Read until the run has said something; the number of that event."""
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        return next(number for number, kind, _ in frames(response.iter_lines()) if kind == "text")


async def async_frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int, str]]:
    """The events of a stream: number and type."""
    number = 0
    async for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("event: "):
            yield number, line[7:]


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
