"""The provider: OpenAI's Chat Completions with streaming, on loopback, in a process of its own.

It refuses what a strict provider refuses, and notes by the machine's monotonic clock what each connection did. Each
trial talks to an address of its own, `/TRIAL/v1`, and asks for the notes with `GET /TRIAL/report`, which waits up to
`?wait=` seconds for all streams of the trial to end. It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .. import _openai as wire
from . import prompts
from .environments import ROOT
from .strict import openai_faults, strict_faults, text_of

# The head of an answer after which the connection is not used again.
_ONCE = wire.HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


@dataclass
class Request:
    """What became of one request. `closed` is when the client hung up, if it did before the answer was whole."""

    messages: list[dict[str, Any]]
    openai_faults: list[str]
    strict_faults: list[str]
    status: int = 200
    at: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    closed: float | None = None
    whole: bool = False

    @property
    def over(self) -> bool:
        return self.whole or self.closed is not None


class Provider:
    def __init__(self) -> None:
        self.trials: defaultdict[str, list[Request]] = defaultdict(list)
        self._changed = asyncio.Condition()
        self._called = 0
        self._answers: dict[int, bytes] = {}

    async def serve(self) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, backlog=512)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, _ = head.split(" ", 2)
                if method == "GET":
                    await self._report(target, writer)
                elif not await self._answer(target, await reader.readexactly(_length(head)), reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    # --- The notes --------------------------------------------------------------------------------------------------

    async def _report(self, target: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        requests = self.trials[url.path.split("/")[1]]
        wait = float(parse_qs(url.query).get("wait", ["0"])[0])
        async with self._changed:
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait_for(lambda: all(each.over for each in requests))
            except TimeoutError:
                pass
        _reply(writer, 200, [asdict(each) for each in requests])
        await writer.drain()

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # --- The answers ------------------------------------------------------------------------------------------------

    async def _answer(
        self, target: str, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection can be used again."""
        body = json.loads(data)
        messages = body["messages"]
        request = Request(messages, openai_faults(messages), strict_faults(messages), at=time.monotonic())
        self.trials[target.split("/")[1]].append(request)
        if request.strict_faults or not body.get("stream"):
            request.status = 400
            request.whole = True
            why = "; ".join(request.strict_faults) or "this server only streams"
            _reply(writer, 400, {"error": {"message": why, "type": "invalid_request_error", "param": "messages"}})
        else:
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            await self._play(request, reader, writer, usage=usage)
        await self._note()
        return not request.sent

    async def _play(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, usage: bool
    ) -> None:
        prompt, done = _asked(request.messages)
        if prompt.startswith(prompts.COUNT):
            chunks = int(prompt.removeprefix(prompts.COUNT))
            writer.write(self._answers.setdefault(chunks, wire.response(chunks)))
        elif prompt in (prompts.STALLED, prompts.FLOWING):
            stall = prompts.STALL if prompt == prompts.STALLED else prompts.PAUSE
            await _until_gone(request, reader, asyncio.create_task(_story(request, writer, stall, usage=usage)))
            return
        elif prompt == prompts.TOOLS and not done:
            writer.write(wire.HEAD + self._calls("quick", "slow") + wire.ending("tool_calls", 20, usage=usage))
        elif prompt == prompts.LOOK_UP:
            call = b"" if done else self._calls("quick")
            await _piecemeal(writer, prompts.ANSWER if done else prompts.BEFORE_CALL, call)
            writer.write(wire.ending("stop" if done else "tool_calls", 8, usage=usage))
        elif prompt.startswith(prompts.TURNS) and done < int(prompt.removeprefix(prompts.TURNS)):
            writer.write(wire.HEAD + self._calls("quick") + wire.ending("tool_calls", 20, usage=usage))
        else:
            writer.write(wire.HEAD + wire.event({"role": "assistant", "content": "Well."}))
            writer.write(wire.ending("stop", 2, usage=usage))
        request.whole = True
        await writer.drain()

    def _calls(self, *names: str) -> bytes:
        self._called += 1
        calls = [_call(at, f"call_{self._called}_{name}", name) for at, name in enumerate(names)]
        return b"".join(wire.event({"role": "assistant", "content": None, "tool_calls": [call]}) for call in calls)


def _asked(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The last prompt, and how many tool results have followed it."""
    done = 0
    for message in reversed(messages):
        if message["role"] == "user":
            return text_of(message).strip(), done
        done += message["role"] == "tool"
    return "", done


async def _piecemeal(writer: asyncio.StreamWriter, pieces: Sequence[str], call: bytes) -> None:
    """Each piece in a packet of its own, so that a client has more than one moment to be stopped in."""
    writer.write(wire.HEAD)
    for data in (*(wire.event({"role": "assistant", "content": piece}) for piece in pieces), call):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(prompts.PIECE)


def _call(at: int, call_id: str, name: str) -> dict[str, Any]:
    return {"index": at, "id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def _story(request: Request, writer: asyncio.StreamWriter, stall: float, *, usage: bool) -> None:
    async def send(data: bytes) -> None:
        writer.write(data)
        request.sent.append((time.monotonic(), len(data)))
        await writer.drain()

    await send(_ONCE + wire.event({"role": "assistant", "content": ""}))
    for word in prompts.WORDS:
        await send(wire.event({"content": word}))
    await asyncio.sleep(stall)
    for _ in range(prompts.MOST):
        await send(wire.event({"content": prompts.MORE}))
        await asyncio.sleep(prompts.PAUSE)
    await send(wire.ending("stop", prompts.MOST, usage=usage))
    request.whole = True


async def _until_gone(request: Request, reader: asyncio.StreamReader, telling: asyncio.Task[None]) -> None:
    """Until the story is told or the client hangs up, whichever comes first."""
    hung_up = asyncio.ensure_future(reader.read(1))
    await asyncio.wait((hung_up, telling), return_when=asyncio.FIRST_COMPLETED)
    if not request.whole:
        request.closed = time.monotonic()
    hung_up.cancel()
    telling.cancel()
    await asyncio.gather(hung_up, telling, return_exceptions=True)


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.split("\r\n"))
    return next(int(value) for name, _, value in lines if name.lower() == "content-length")


def _reply(writer: asyncio.StreamWriter, status: int, body: Any) -> None:
    data = json.dumps(body).encode()
    writer.write(b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data)))
    writer.write(data)


@contextmanager
def provider() -> Iterator[str]:
    """The server's process, for as long as the block; its address."""
    process = subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(Provider().serve())
