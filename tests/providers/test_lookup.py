"""OpenRouter: a request that was cut is looked up by its id, and the bill becomes exact."""

from __future__ import annotations

import json

import pytest

from quiesce import Agent
from quiesce.models.openai_chat import OpenAIChat
from quiesce.usage import Provenance

from .recordings import OPENAI_CHAT
from .test_hang_up import endless, first_words
from .wire import Play, wire

pytestmark = pytest.mark.promise("P6")


def _json(status: str, body: object) -> Play:
    data = json.dumps(body).encode()
    headers = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return Play(headers.encode() + data)


async def test_a_cut_request_is_looked_up_by_its_id() -> None:
    record = {"data": {"id": "gen-1", "native_tokens_prompt": 31, "native_tokens_completion": 17}}
    not_yet = _json("404 Not Found", {"error": {"message": "no such generation", "code": 404}})
    async with wire(endless(OPENAI_CHAT), not_yet, _json("200 OK", record)) as server:
        agent = Agent(OpenAIChat("some/model", server="openrouter", base_url=server.url, api_key="k"))
        run = agent.start("What colour?")
        await first_words(run)
        run.cancel()
        receipt = await run.stopped()
        assert receipt.usage.output.source is not Provenance.REPORTED
        usage = await (await run.result()).usage.final()
        assert (usage.input.value, usage.output.value) == (31, 17)
        assert usage.output.source is Provenance.REPORTED
        assert [request.path.split("?")[0] for request in server.requests[1:]] == ["/generation"] * 2
        entry = usage.entries[0]
        assert f"id={entry.request_id}" in server.requests[-1].path
