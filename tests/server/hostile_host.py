"""A program for a test: a server with a limit on its memory, and a watch on the longest hold of its event loop.

It prints its port. For each line that it reads, it prints as JSON what was longest since the line before.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import socket
import sys
import threading
import time
from typing import Any

from quiesce import Agent, tool
from quiesce.models.providers.anthropic import Anthropic
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.scripted import Say, ScriptedModel
from quiesce.retry import Retry
from quiesce.server import Settings, create_app
from quiesce.server.listener import freeze_loaded_objects, server

MEMORY = 2 << 30


class Watch:
    """Measures each callback of the event loop. The time in which the thread waited for a processor is left out."""

    def __init__(self) -> None:
        self.longest = self.with_waiting = 0.0
        self.what = ""
        self.longest_collection = self._collecting = 0.0
        self._file = -1

    def install(self) -> None:
        run = asyncio.events.Handle._run
        gc.callbacks.append(self._on_collection)
        self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        thread = threading.get_ident()

        def watched(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                run(handle)
                return
            waited, begun = self._waited(), time.perf_counter()
            run(handle)
            took = time.perf_counter() - begun
            self.with_waiting = max(self.with_waiting, took)
            if took > self.longest:
                took -= self._waited() - waited
                if took > self.longest:
                    self.longest, self.what = took, repr(handle)[:300]

        asyncio.events.Handle._run = watched  # type: ignore[method-assign]

    def _on_collection(self, phase: str, _: object) -> None:
        now = time.perf_counter()
        if phase == "stop":
            self.longest_collection = max(self.longest_collection, now - self._collecting)
        self._collecting = now

    def _waited(self) -> float:
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9

    def report(self) -> dict[str, Any]:
        found = {
            "hold": self.longest,
            "with waiting": self.with_waiting,
            "what": self.what,
            "gc": self.longest_collection,
        }
        self.longest = self.with_waiting = self.longest_collection = 0.0
        return found | {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


@tool
async def echo(word: str = "") -> str:
    """Say it again."""
    return word


def agents(provider: str, attacks: list[str]) -> list[Agent]:
    made = [Agent(ScriptedModel(then=Say("Good morning. " * 200, chunk=10, pause=0.01)), name="talker")]
    for attack in attacks:
        for kind, model in (("openai", OpenAIChat), ("anthropic", Anthropic)):
            url = f"{provider}/{attack}" + ("/v1" if kind == "openai" else "")
            name = f"{kind}-{attack}"
            made.append(Agent(model("m", api_key="k", base_url=url), name=name, tools=[echo], retry=Retry(attempts=1)))
    return made


async def main() -> None:
    watch = Watch()
    watch.install()
    settings = Settings(header_timeout=2, body_timeout=2, send_timeout=3, max_streams_per_key=1000)
    app = create_app(*agents(sys.argv[1], sys.argv[2:]), settings=settings)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    uvicorn = server(app, port=listener.getsockname()[1], log_level="critical")
    freeze_loaded_objects()  # as `serve` does
    serving = asyncio.create_task(uvicorn.serve(sockets=[listener]))
    print(listener.getsockname()[1], flush=True)

    def answer() -> None:
        if sys.stdin.readline():
            print(json.dumps(watch.report()), flush=True)
        else:
            uvicorn.drain()

    asyncio.get_running_loop().add_reader(0, answer)
    await serving


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asyncio.run(main())
