"""What a whole agent turn costs per chunk of an OpenAI stream, as a ratio to a bare client in the same run.

The bare client is the same HTTP library with the leanest reading that it has, and msgspec for each chunk: no agent, no
SDK, nothing kept but the text. The server is a process of its own. Rounds alternate, so that a noisy machine disturbs
both alike, and CPU time is compared as well as wall time.

    python -m bench.provider_chunks [chunks] [rounds]
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import httpx2
import msgspec

from quiesce import Agent
from quiesce.models.openai_chat import OpenAIChat

LIMIT = 1.3


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: dict[str, Any], **more: Any) -> bytes:
    body = {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "gpt-4o-mini",
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        "usage": None,
    }
    return _chunk(b"data: " + json.dumps(body | more, separators=(",", ":")).encode() + b"\n\n")


def response(chunks: int) -> bytes:
    """The bytes of an answer of so many chunks."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    words = (_event({"content": f" word{number % 100}"}) for number in range(chunks))
    end = _event({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    usage = _event({}, choices=[], usage={"prompt_tokens": 9, "completion_tokens": chunks, "total_tokens": chunks + 9})
    return head + b"".join(words) + end + usage + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def serve(chunks: int, port: Connection) -> None:
    """The server's process."""
    data = response(chunks)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].partition(b":")[2]))
                writer.write(data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


# --- The bare client --------------------------------------------------------------------------------------------------


class Delta(msgspec.Struct, gc=False):
    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice]


async def bare(client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> str:
    """Read the answer with as little as it takes."""
    decode = msgspec.json.Decoder(Chunk).decode
    said: list[str] = []
    rest = b""
    async with client.stream("POST", f"{url}/chat/completions", json=body) as answer:
        async for data in answer.aiter_raw():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    continue
                chunk = decode(event[6:])
                if chunk.choices:
                    text = chunk.choices[0].delta.content
                    if text:
                        said.append(text)
    return "".join(said)


async def measure(url: str, chunks: int, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of CPU for each round: bare, agent; and the ratio of wall times."""
    model = OpenAIChat("gpt-4o-mini", base_url=url, api_key="none")
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    bare_times: list[float] = []
    agent_times: list[float] = []
    walls: list[float] = []
    async with httpx2.AsyncClient() as client:
        expected = await bare(client, url, body)
        assert len(expected.split()) == chunks
        for _ in range(rounds):
            cpu, wall = time.process_time(), time.perf_counter()
            assert await bare(client, url, body) == expected
            bare_times.append(time.process_time() - cpu)
            bare_wall = time.perf_counter() - wall
            agent = Agent(model)
            cpu, wall = time.process_time(), time.perf_counter()
            result = await agent.invoke_async("Go.")
            agent_times.append(time.process_time() - cpu)
            walls.append((time.perf_counter() - wall) / bare_wall)
            assert result.text == expected
            assert result.usage.output.value == chunks
    return bare_times, agent_times, walls


def main(chunks: int = 20_000, rounds: int = 9) -> float:
    """Print the figures; returns the ratio."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(chunks, there), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{here.recv()}/v1"
        bare_times, agent_times, walls = asyncio.run(measure(url, chunks, rounds))
    finally:
        server.terminate()
        server.join()
    ratios = [mine / bare_time for mine, bare_time in zip(agent_times, bare_times, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{chunks:,} chunks of an OpenAI stream, {rounds} rounds")
    print(f"  bare client   {statistics.median(bare_times) / chunks * 1e6:6.1f} us per chunk")
    print(f"  agent turn    {statistics.median(agent_times) / chunks * 1e6:6.1f} us per chunk")
    print(
        f"  ratio         {ratio:6.2f} (CPU; {min(ratios):.2f} to {max(ratios):.2f}),"
        f" {statistics.median(walls):.2f} (wall)"
    )
    print(f"  limit         {LIMIT:6.2f} {'met' if ratio <= LIMIT else 'NOT MET'}")
    return ratio


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    sys.exit(0 if main(*arguments) <= LIMIT else 1)
