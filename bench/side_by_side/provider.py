"""The fake provider: OpenAI's Chat Completions and Responses on loopback, in a process of its own. It prints its port.

Each program talks to an address of its own, `/NAME/v1`. `GET /NAME/report` returns what was sent there.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from . import wire
from .answers import OVERLOADED, Answer, answer

STALL = 5.0  # seconds until a stalled answer goes on, if its client is still there
_requests: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)


class Protocol(NamedTuple):
    """How requests of one API are read, and answers written: whole, or as what begins and what ends a stream."""

    read: Callable[[Any], wire.Request]
    whole: Callable[[str, Answer], dict[str, Any]]
    parts: Callable[[str, Answer], tuple[Any, Any]]


def _chat_parts(model: str, said: Answer) -> tuple[Any, Any]:
    return wire.chat_begin(model, said), wire.chat_end(model, said)


def _response_parts(model: str, said: Answer) -> tuple[Any, Any]:
    stream = wire.ResponseStream(model, said)
    return stream.begin(), stream.end()


CHAT = Protocol(wire.read_chat, wire.whole_chat, _chat_parts)
RESPONSES = Protocol(wire.read_responses, wire.whole_response, _response_parts)


async def chat(http: HTTPRequest) -> Response:
    """`POST /NAME/v1/chat/completions`."""
    return await _answer(http, CHAT)


async def responses(http: HTTPRequest) -> Response:
    """`POST /NAME/v1/responses`."""
    return await _answer(http, RESPONSES)


async def _answer(http: HTTPRequest, protocol: Protocol) -> Response:
    body = await http.json()
    request = protocol.read(body)
    note = _note(http, request)
    if request.model == OVERLOADED:
        return _overloaded()
    said = answer(request)
    if not body.get("stream"):
        await _stall(said, note)
        return JSONResponse(protocol.whole(request.model, said))
    begin, end = protocol.parts(request.model, said)
    return StreamingResponse(_stream(begin, end, said, note), media_type="text/event-stream")


async def report(http: HTTPRequest) -> Response:
    """`GET /NAME/report`."""
    return JSONResponse(_requests[http.path_params["name"]])


def _note(http: HTTPRequest, request: wire.Request) -> dict[str, Any]:
    note = {
        "model": request.model,
        "prompt": request.prompt,
        "texts": request.texts,
        "schema": request.has_schema,
        "calls": request.calls,
        "unanswered": request.unanswered,
        "closed": False,
    }
    _requests[http.path_params["name"]].append(note)
    return note


def _overloaded() -> Response:
    error = {"message": "The model is overloaded.", "type": "server_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status_code=503)


async def _stream(
    begin: Iterator[bytes], end: Iterator[bytes], said: Answer, note: dict[str, Any]
) -> AsyncIterator[bytes]:
    for event in begin:
        yield event
        await asyncio.sleep(0.01)  # a packet for each piece
    await _stall(said, note)
    for event in end:
        yield event


async def _stall(said: Answer, note: dict[str, Any]) -> None:
    """Wait, if the answer stalls, and note whether the client hung up."""
    if said.stalls:
        try:
            await asyncio.sleep(STALL)
        except asyncio.CancelledError:
            note["closed"] = True
            raise


app = Starlette(
    routes=[
        Route("/{name}/v1/chat/completions", chat, methods=["POST"]),
        Route("/{name}/v1/responses", responses, methods=["POST"]),
        Route("/{name}/report", report),
    ]
)


@contextmanager
def provider() -> Iterator[str]:
    """The address of a provider that runs until the block is left."""
    command = [sys.executable, "-m", __spec__.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
