"""The bare client that is the floor: httpx2, bytes, and msgspec."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

from ._bare import Answer, BareClient


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


_decode = msgspec.json.Decoder(_Chunk).decode
_HEADERS = {"content-type": "application/json"}


class Floor(BareClient):
    async def open(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = httpx2.AsyncClient(timeout=600, limits=limits, **self.wire.options())

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        text, call_id, arguments, rest = "", "", "", b""
        sent = msgspec.json.encode(body)
        async with self.http.stream("POST", url, content=sent, headers=_HEADERS) as answer:
            async for data in answer.aiter_raw():
                *events, rest = (rest + data).split(b"\n\n")
                for each in events:
                    if each == b"data: [DONE]":
                        continue
                    for choice in _decode(each[6:]).choices:
                        text += choice.delta.content or ""
                        for call in choice.delta.tool_calls or ():
                            call_id = call.id or call_id
                            arguments += call.function.arguments
        return Answer(text, call_id, arguments)


client = Floor
