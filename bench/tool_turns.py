"""What a turn costs that calls a tool which does nothing, in short and in long runs, beside two bare clients.

The bare clients are loops of their own, without an agent: one reads lines and uses `json`, as people write it; the
other, the floor, reads bytes and uses msgspec. The server is a process of its own. Rounds alternate, so that a noisy
machine disturbs all alike, and CPU time is compared as well as wall time.

    python -m bench.tool_turns [turns ...]
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import msgspec

from quiesce import Agent, Limits, tool
from quiesce.models.providers.openai_chat import OpenAIChat

from ._server import running_server

LIMIT = 1.5
ROUNDS = {20: 15, 200: 5}
TOOL = {
    "type": "function",
    "function": {
        "name": "nothing",
        "description": "Do nothing.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
Turns = Callable[[int], Awaitable[str]]


@tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return f"Nothing was done, {number} times."


# --- The bare clients -----------------------------------------------------------------------------------------------


def _begin() -> dict[str, Any]:
    said = {"role": "user", "content": "Go."}
    return {"model": "gpt-4o-mini", "messages": [said], "stream": True, "tools": [TOOL]}


def _follow_up(body: dict[str, Any], call_id: str, arguments: str) -> None:
    call = {"id": call_id, "type": "function", "function": {"name": "nothing", "arguments": arguments}}
    result = f"Nothing was done, {json.loads(arguments)['number']} times."
    body["messages"].append({"role": "assistant", "content": None, "tool_calls": [call]})
    body["messages"].append({"role": "tool", "tool_call_id": call_id, "content": result})


def with_lines(client: Any, url: str) -> Turns:
    """Lines and `json`, as people write it."""

    async def run(turns: int) -> str:
        body = _begin()
        while True:
            text, call_id, arguments = "", "", ""
            async with client.stream("POST", f"{url}/turns-{turns}/v1/chat/completions", json=body) as answer:
                async for line in answer.aiter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
                        for call in choice["delta"].get("tool_calls") or ():
                            call_id = call.get("id") or call_id
                            arguments += call["function"]["arguments"]
            if not call_id:
                return text
            _follow_up(body, call_id, arguments)

    return run


class _Function(msgspec.Struct, gc=False):
    arguments: str = ""


class _Call(msgspec.Struct, gc=False):
    function: _Function
    id: str | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice]


def with_bytes(client: httpx2.AsyncClient, url: str) -> Turns:
    """Bytes and msgspec: the floor."""
    decode = msgspec.json.Decoder(_Chunk).decode

    async def run(turns: int) -> str:
        body = _begin()
        headers = {"content-type": "application/json"}
        while True:
            text, call_id, arguments, rest = "", "", "", b""
            sent = msgspec.json.encode(body)
            async with client.stream(
                "POST", f"{url}/turns-{turns}/v1/chat/completions", content=sent, headers=headers
            ) as answer:
                async for data in answer.aiter_raw():
                    *events, rest = (rest + data).split(b"\n\n")
                    for each in events:
                        if each == b"data: [DONE]":
                            continue
                        for choice in decode(each[6:]).choices:
                            text += choice.delta.content or ""
                            for call in choice.delta.tool_calls or ():
                                call_id = call.id or call_id
                                arguments += call.function.arguments
            if not call_id:
                return text
            _follow_up(body, call_id, arguments)

    return run


def with_quiesce(url: str) -> Turns:
    """An agent."""
    models: dict[int, OpenAIChat] = {}

    async def run(turns: int) -> str:
        if turns not in models:
            models[turns] = OpenAIChat("gpt-4o-mini", base_url=f"{url}/turns-{turns}/v1", api_key="none")
        agent = Agent(models[turns], tools=[nothing], limits=Limits(turns=turns))
        return (await agent.invoke_async("Go.")).text

    return run


# --- The measurement ------------------------------------------------------------------------------------------------


async def measure(url: str, turns: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of CPU and of wall time for each round of each client."""
    try:
        lines, library = importlib.import_module("httpx"), "httpx"
    except ModuleNotFoundError:  # its successor has the same interface
        lines, library = httpx2, "httpx2"
    taken: dict[str, list[tuple[float, float]]] = {}
    async with lines.AsyncClient() as plain, httpx2.AsyncClient() as client:
        clients: dict[str, Turns] = {
            f"{library} lines, json": with_lines(plain, url),
            "httpx2 bytes, msgspec": with_bytes(client, url),
            "quiesce": with_quiesce(url),
        }
        for run in clients.values():
            assert await run(3) == "Done."
        for _ in range(rounds):
            for name, run in clients.items():
                cpu, wall = time.process_time(), time.perf_counter()
                assert await run(turns) == "Done."
                spent = time.process_time() - cpu, time.perf_counter() - wall
                taken.setdefault(name, []).append(spent)
    return taken


def ratio_to_lines(taken: dict[str, list[tuple[float, float]]], name: str = "quiesce", *, column: int = 0) -> float:
    """The median ratio to the client that people write: of CPU (0) or wall time (1)."""
    first = next(iter(taken.values()))
    return statistics.median(mine[column] / theirs[column] for mine, theirs in zip(taken[name], first, strict=True))


def main(*turns: int) -> float:
    """Print the figures; returns the largest ratio."""
    worst = 0.0
    with running_server() as url:
        for each in turns or tuple(ROUNDS):
            taken = asyncio.run(measure(url, each, ROUNDS.get(each, 3)))
            print(f"a run of {each:,} turns, {len(taken['quiesce'])} rounds; per turn")
            for name, spent in taken.items():
                cpu, wall = (statistics.median(column) / each * 1e3 for column in zip(*spent, strict=True))
                ratios = (
                    f"{ratio_to_lines(taken, name):5.2f} (CPU), {ratio_to_lines(taken, name, column=1):5.2f} (wall)"
                )
                print(f"  {name:22} {cpu:6.2f} ms CPU {wall:6.2f} ms wall   {ratios}")
            worst = max(worst, ratio_to_lines(taken))
    print(f"  limit {LIMIT:.2f} {'met' if worst <= LIMIT else 'NOT MET'}")
    return worst


if __name__ == "__main__":
    sys.exit(0 if main(*(int(each) for each in sys.argv[1:])) <= LIMIT else 1)
