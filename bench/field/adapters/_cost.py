"""What a framework costs when nothing is stopped: chunks, tool turns, its import."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from ..._openai import bare
from .. import prompts
from ._subject import Subject, Tools

CHUNKS = 5_000

_IMPORT = """
import json, os, time

def resident():
    with open("/proc/self/statm") as found:
        return int(found.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident()
began = time.process_time()
{imports}
print(json.dumps({{"import_ms": (time.process_time() - began) * 1000, "import_mb": (resident() - before) / 1e6}}))
"""


async def chunks(make: type[Subject], server: str, rounds: int) -> AsyncIterator[dict[str, Any]]:
    """CPU time of a whole answer, and of the bare client right before it."""
    prompt = f"{prompts.COUNT}{CHUNKS}"
    body = _body([{"role": "user", "content": prompt}])
    async with httpx2.AsyncClient(trust_env=False) as client:
        expected = await bare(client, f"{server}/bare/v1", body)
        for number in range(rounds + 1):
            began = time.process_time()
            assert await bare(client, f"{server}/bare/v1", body) == expected
            bare_seconds = time.process_time() - began
            seconds, shown = await _timed(make, f"{server}/{make.__name__}-chunks-{number}/v1", prompt)
            if shown.split() != expected.split():
                raise RuntimeError("the text that was shown is not the text that was sent")
            if number:
                yield {"ratio": seconds / bare_seconds, "bare_us": bare_seconds / CHUNKS * 1e6}


async def turns(make: type[Subject], server: str, rounds: int) -> AsyncIterator[dict[str, Any]]:
    """CPU time of a run of several tool turns, and of a bare client that sends the same requests."""
    prompt = f"{prompts.TURNS}{prompts.TURN_COUNT}"
    async with httpx2.AsyncClient(trust_env=False) as client:
        for number in range(rounds + 1):
            began = time.process_time()
            for done in range(prompts.TURN_COUNT + 1):
                await bare(client, f"{server}/bare/v1", _body(_conversation(prompt, done)))
            bare_seconds = time.process_time() - began
            seconds, shown = await _timed(make, f"{server}/{make.__name__}-turns-{number}/v1", prompt)
            if "Well." not in shown:
                raise RuntimeError("the run did not come to its end")
            if number:
                yield {"ratio": seconds / bare_seconds, "turn_ms": seconds / (prompts.TURN_COUNT + 1) * 1000}


async def imports(make: type[Subject], _server: str, rounds: int) -> AsyncIterator[dict[str, Any]]:
    """CPU time and memory of the imports that a first program has, each in a fresh process."""
    for number in range(rounds + 1):
        code = _IMPORT.format(imports=make.imports)
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        if number:  # the first one compiles
            yield json.loads(done.stdout.splitlines()[-1])


async def _timed(make: type[Subject], url: str, prompt: str) -> tuple[float, str]:
    subject = make(url, Tools())
    shown: list[str] = []
    began = time.process_time()
    await subject.run(prompt, shown.append)
    seconds = time.process_time() - began
    subject.tools.close()
    return seconds, "".join(shown)


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "field", "messages": messages, "stream": True}


def _conversation(prompt: str, done: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    for number in range(done):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "quick", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": call["id"], "content": prompts.QUICK_RESULT})
    return said
