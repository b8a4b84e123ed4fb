"""From the start of a process to the first byte of its first request, and its memory after the first answer.

Each program is a fresh interpreter that sends one prompt to a server on this machine and reads the answer: two bare
clients, and an agent by its name. Rounds alternate. CPU time is that of the whole process, its end included.

    python -m bench.ready [rounds]
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from ._openai import read_request, response

CHUNKS = 50
LIMIT, MEMORY_LIMIT = 0.3, 55.0

_LINES = """
import asyncio, json, {library} as library

async def main():
    body = {{"model": "gpt-4o-mini", "stream": True, "messages": [{{"role": "user", "content": "Go."}}]}}
    text = ""
    async with library.AsyncClient() as client:
        async with client.stream("POST", "{url}/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
    assert len(text.split()) == {chunks}

asyncio.run(main())
"""
_AGENT = """
from quiesce import Agent

assert len(Agent("openai-chat:gpt-4o-mini")("Go.").text.split()) == {chunks}
"""
# As where `quiesce[openai]` is not installed: a stopped answer is estimated then, not counted.
_NO_VOCABULARY = """
import sys
sys.modules["splintr"] = None
"""
_MEMORY = """
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")][0])
"""


class Ready(NamedTuple):
    """Seconds to the first byte of the request, seconds of CPU, and megabytes."""

    first_byte: float
    cpu: float
    memory: float


class Provider:
    """A server that notes when each request begins."""

    def __init__(self) -> None:
        self._data = response(CHUNKS)
        self.first_byte = 0.0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while await reader.readexactly(1):
                self.first_byte = time.monotonic()
                await read_request(reader)
                writer.write(self._data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def run_program(python: str, program: str, provider: Provider, variables: dict[str, str]) -> Ready:
    """Run a program that sends one request."""
    before = os.times()
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        python, "-c", program + _MEMORY, stdout=asyncio.subprocess.PIPE, env=variables
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Ready(provider.first_byte - started, cpu, int(printed) / 1024)


async def measure(rounds: int) -> dict[str, list[Ready]]:
    """What each program took, in each round."""
    provider = Provider()
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    libraries = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    programs = {f"{name} lines, json": _LINES.format(library=name, url=url, chunks=CHUNKS) for name in libraries}
    programs["quiesce, no vocabulary"] = _NO_VOCABULARY + _AGENT.format(chunks=CHUNKS)
    programs["quiesce"] = _AGENT.format(chunks=CHUNKS)
    taken: dict[str, list[Ready]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as compiled:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"PYTHONPYCACHEPREFIX": compiled, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        for number in range(rounds + 1):
            for name, program in programs.items():
                ready = await run_program(sys.executable, program, provider, variables)
                if number:  # the first round has compiled the modules
                    taken[name].append(ready)
    server.close()
    return taken


def main(rounds: int = 11) -> None:
    """Print the figures."""
    print(f"ready: {rounds} rounds (wanted: {LIMIT} s to the first byte, {MEMORY_LIMIT:.0f} MB after the answer)")
    for name, rows in asyncio.run(measure(rounds)).items():
        first, cpu, memory = zip(*rows, strict=True)
        print(
            f"  {name:22} first byte {min(first):5.2f} to {statistics.median(first):5.2f} s (least, median)"
            f"   CPU {min(cpu):5.2f} to {statistics.median(cpu):5.2f} s   {statistics.median(memory):5.1f} MB"
        )


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
