"""The server of the benchmarks: OpenAI's Chat Completions on this machine, in a process of its own.

The first part of a request's path says what is answered:

    turns-20          asks for the tool `nothing` until 19 results were sent, then says "Done."
    chunks-5000       an answer of so many chunks, in one piece
    chunks-5000-16    the same; the head and the chunks have sizes so that reads of 16 chunks end where chunks end
    together-500      half of an answer, and the rest when so many requests have come
    flood             a word every two milliseconds, without end
    stall             one word, and then nothing
    sleep, child      asks for the tool `sleeping`, or for the tool `helper`
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ._openai import HEAD, ending, event, read_request, response

TOGETHER_CHUNKS: Final = 50
_WORD: Final = event({"content": "word "})
_PAUSE: Final = 0.5  # seconds for which all runs are under way


# --- What is answered -----------------------------------------------------------------------------------------------


def chunk_size() -> int:
    """The bytes of one chunk of `chunks-N-PER_READ`."""
    return len(_WORD)


@functools.lru_cache
def _chunks(number: int, per_read: int) -> bytes:
    if not per_read:
        return response(number)
    room = per_read * len(_WORD) - len(HEAD) - len(b"x-filler: \r\n")
    while room < 0:
        room += per_read * len(_WORD)
    head = HEAD[:-2] + b"x-filler: " + b"x" * room + b"\r\n\r\n"
    return head + _WORD * number + ending("stop", number)


def _call(name: str, number: int, arguments: dict[str, Any]) -> bytes:
    call = {"index": 0, "id": f"call_{number}", "type": "function"}
    begun = event({"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]})
    sent = json.dumps(arguments, separators=(",", ":"))
    return HEAD + begun + event({"tool_calls": [{"index": 0, "function": {"arguments": sent}}]})


def answer_to(kind: str, body: bytes) -> bytes:
    """The answer to a request, head and all. One that does not end has the beginning of it."""
    match kind.split("-"):
        case ["turns", turns]:
            done = body.count(b'"tool_call_id"')
            if done < int(turns) - 1:
                return _call("nothing", done + 1, {"number": done + 1}) + ending("tool_calls", 12)
            return HEAD + event({"content": "Done."}) + ending("stop", 2)
        case ["chunks", number, *per_read]:
            return _chunks(int(number), int(per_read[0]) if per_read else 0)
        case ["sleep"]:
            return _call("sleeping", 1, {}) + ending("tool_calls", 5)
        case ["child"]:
            return _call("helper", 1, {"prompt": "Go."}) + ending("tool_calls", 5)
        case ["flood"] | ["stall"]:
            return HEAD + _WORD
        case _:
            raise ValueError(f"nothing is answered at {kind!r}")


# --- The process ----------------------------------------------------------------------------------------------------


class _Together:
    """Requests that wait for each other."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def answer(self, number: int, writer: asyncio.StreamWriter) -> None:
        half = _WORD * (TOGETHER_CHUNKS // 2)
        writer.write(HEAD + half)
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == number:
            loop.call_later(_PAUSE, self._release)
        await mine
        writer.write(half + ending("stop", TOGETHER_CHUNKS))

    def _release(self) -> None:
        for each in self._waiting:
            each.set_result(None)
        self._waiting.clear()


async def _serve() -> None:
    together = _Together()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, body = await read_request(reader)
                kind = head.split(b"/", 2)[1].decode()
                if kind.startswith("together-"):
                    await together.answer(int(kind.partition("-")[2]), writer)
                else:
                    writer.write(answer_to(kind, body))
                await writer.drain()
                while kind == "flood":
                    await asyncio.sleep(0.002)
                    writer.write(_WORD)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**26, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start the server; gives its address, and ends it."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "bench._server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


if __name__ == "__main__":
    asyncio.run(_serve())
