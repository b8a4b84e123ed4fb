"""The bare client as people write it: httpx, lines, and `json`."""

from __future__ import annotations

import json
from typing import Any

import httpx

from ._bare import Answer, BareClient


class Lines(BareClient):
    async def open(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = httpx.AsyncClient(timeout=600, limits=limits, **self.wire.options())

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        text, call_id, arguments = "", "", ""
        async with self.http.stream("POST", url, json=body) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    for call in choice["delta"].get("tool_calls") or ():
                        call_id = call.get("id") or call_id
                        arguments += call["function"]["arguments"]
        return Answer(text, call_id, arguments)


client = Lines
