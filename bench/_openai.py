"""The bytes of an OpenAI stream, and the leanest client that reads them. Needs nothing of Quiesce."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import msgspec

# --- The bytes ------------------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of one HTTP request."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await body_of(head, reader)


async def body_of(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """The body that follows a head."""
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return await reader.readexactly(int(lengths[0].partition(b":")[2]))


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def unchunked(answer: bytes) -> list[bytes]:
    """The chunks of the body of an answer, without the head and HTTP's framing."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    found: list[bytes] = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length:
            found.append(rest[:length])
        rest = rest[length + 2 :]
    return found


def event(delta: dict[str, Any], **more: Any) -> bytes:
    """One chunk of an answer."""
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
    return http_chunk(b"data: " + json.dumps(body | more, separators=(",", ":")).encode() + b"\n\n")


def ending(reason: str, output: int, *, usage: bool = True) -> bytes:
    """The last bytes of an answer: why it ended, what it used, and that it is over."""
    end = event({}, choices=[{"index": 0, "delta": {}, "finish_reason": reason}])
    if usage:
        used = {"prompt_tokens": 9, "completion_tokens": output, "total_tokens": output + 9}
        end += event({}, choices=[], usage=used)
    return end + http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def response(chunks: int) -> bytes:
    """The bytes of an answer of so many chunks."""
    words = (event({"content": f" word{number % 100}"}) for number in range(chunks))
    return HEAD + b"".join(words) + ending("stop", chunks)


# --- The bare client ------------------------------------------------------------------------------------------------


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
            for each in events:
                if each == b"data: [DONE]":
                    continue
                chunk = decode(each[6:])
                if chunk.choices:
                    text = chunk.choices[0].delta.content
                    if text:
                        said.append(text)
    return "".join(said)
