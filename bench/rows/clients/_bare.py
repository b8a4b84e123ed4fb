"""What both bare clients have in common: the conversation as a list of dictionaries, and a stop that cancels a task."""

from __future__ import annotations

import abc
import asyncio
import json
from typing import Any, NamedTuple

from ._base import Client, Stop, result_of, soon

TOOL = {
    "type": "function",
    "function": {
        "name": "nothing",
        "description": "Do nothing.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
BODY = {"model": "gpt-4o-mini", "stream": True, "messages": [{"role": "user", "content": "Go."}]}


class Answer(NamedTuple):
    """The text of an answer, or the tool call."""

    text: str
    call_id: str
    arguments: str


class BareClient(Client):
    """A loop of its own, without an agent. A stop leaves no conversation, no bill and no receipt."""

    http: Any

    @abc.abstractmethod
    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        """Send one request, and read the answer."""

    async def run(self, kind: str, turns: int) -> str:
        url = f"{self.wire.base(kind)}/chat/completions"
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
        body: dict[str, Any] = {"model": "gpt-4o-mini", "messages": messages, "stream": True}
        if turns > 1:
            body["tools"] = [TOOL]
        while True:
            text, call_id, arguments = await self.answer(url, body)
            if not call_id:
                return text
            call = {"id": call_id, "type": "function", "function": {"name": "nothing", "arguments": arguments}}
            result = result_of(json.loads(arguments)["number"])
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    async def begin(self, kind: str) -> Stop:
        begun = asyncio.Event()

        async def read(kind: str) -> None:
            async with self.http.stream("POST", f"{self.wire.base(kind)}/chat/completions", json=BODY) as answer:
                async for line in answer.aiter_lines():
                    if '"content":"word' in line:
                        begun.set()

        async def work() -> None:
            await read(kind)
            if kind == "sleep":
                begun.set()
                await asyncio.Event().wait()
            await asyncio.create_task(read("stall"))

        task = asyncio.create_task(work())
        await soon(begun)

        async def stop() -> None:
            task.cancel()
            await asyncio.wait((task,))

        return stop
