"""A request that was cut is asked about: looked up, cancelled at the provider, or counted by the provider's counter."""

from __future__ import annotations

import json

import pytest

from quiesce import Agent
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.providers.anthropic import Anthropic
from quiesce.models.providers.gemini import Gemini
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.providers.openai_responses import OpenAIResponses
from quiesce.usage import Provenance, Usage

from .recordings import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES
from .test_hang_up import endless, first_words
from .wire import Play, chunk, head, sse, wire

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
        usage = await (await run).usage.final()
        assert (usage.input.value, usage.output.value) == (31, 17)
        assert usage.output.source is Provenance.REPORTED
        assert [request.path.split("?")[0] for request in server.requests[1:]] == ["/generation"] * 2
        entry = usage.entries[0]
        assert f"id={entry.request_id}" in server.requests[-1].path


async def _cut(agent: Agent) -> Usage:
    run = agent.start("What colour?")
    await first_words(run)
    run.cancel()
    receipt = await run.stopped()
    assert receipt.usage.output.source not in (Provenance.REPORTED, Provenance.COUNTED)
    return await (await run).usage.final()


async def test_a_response_in_the_background_is_cancelled_at_the_provider() -> None:
    cancelled = {"id": "r", "status": "cancelled", "usage": {"input_tokens": 31, "output_tokens": 17}}
    async with wire(endless(OPENAI_RESPONSES), _json("200 OK", cancelled)) as server:
        usage = await _cut(Agent(OpenAIResponses("gpt-5", base_url=server.url, api_key="k", background=True)))
        (entry,) = usage.entries
        assert entry.ended == "cancelled_at_provider"
        assert (usage.input.value, usage.output.value) == (31, 17)
        assert server.requests[1].path == f"/responses/{entry.request_id}/cancel"
        assert server.requests[0].json["background"]
        assert server.requests[0].json["store"]


async def test_a_cancelled_response_without_usage_is_looked_up() -> None:
    unknown = {"id": "r", "status": "cancelled", "usage": None}
    known = {"id": "r", "status": "cancelled", "usage": {"input_tokens": 31, "output_tokens": 17}}
    async with wire(endless(OPENAI_RESPONSES), _json("200 OK", unknown), _json("200 OK", known)) as server:
        usage = await _cut(Agent(OpenAIResponses("gpt-5", base_url=server.url, api_key="k", background=True)))
        assert (usage.input.value, usage.output.value) == (31, 17)
        assert server.requests[2].path == f"/responses/{usage.entries[0].request_id}"


def test_without_background_nothing_is_stored() -> None:
    model = OpenAIResponses("gpt-5", base_url="http://x", api_key="k")
    body = model.body(ModelRequest((UserMessage((Text("hi"),)),)))
    assert body["store"] is False
    assert "background" not in body
    assert model.stop_policy == "hang_up"


async def test_claude_has_its_own_tokens_counted() -> None:
    one, whole = _json("200 OK", {"input_tokens": 8}), _json("200 OK", {"input_tokens": 7 + 120})
    async with wire(endless(ANTHROPIC), one, whole, endless(ANTHROPIC), whole) as server:
        model = Anthropic("claude-sonnet-5", base_url=server.url, api_key="k", stop_policy="count")
        agent = Agent(model)
        usage = await _cut(agent)
        assert usage.input.source is Provenance.REPORTED  # said at the beginning of the stream
        assert usage.output.source is Provenance.COUNTED
        assert usage.output.value == 120
        assert usage.entries[0].supersedes
        assert [request.path for request in server.requests[1:]] == ["/v1/messages/count_tokens"] * 2
        assert not {"max_tokens", "stream"} & set(server.requests[1].json)
        await _cut(agent)  # what the counter adds to every text is known by now
        assert len(server.requests) == 5


async def test_gemini_has_its_own_tokens_counted() -> None:
    silent = sse({"candidates": [{"content": {"parts": [{"text": "The sky is blue"}], "role": "model"}}]})
    counts = [_json("200 OK", {"totalTokens": number}) for number in (40, 3, 2 + 90)]
    async with wire(Play(head("text/event-stream") + chunk(silent), then="stall"), *counts) as server:
        usage = await _cut(Agent(Gemini("gemini-2.0-flash", base_url=server.url, api_key="k", stop_policy="count")))
        assert (usage.input.value, usage.output.value) == (40, 90)
        assert usage.input.source is usage.output.source is Provenance.COUNTED
        assert server.requests[1].path.endswith(":countTokens")
        assert server.requests[1].json["generateContentRequest"]["contents"][0]["parts"] == [{"text": "What colour?"}]


async def test_a_counter_that_fails_leaves_the_estimate() -> None:
    refused = _json("429 Too Many Requests", {"type": "error", "error": {"type": "rate_limit_error", "message": "no"}})
    async with wire(endless(ANTHROPIC), refused) as server:
        model = Anthropic("claude-sonnet-5", base_url=server.url, api_key="k", stop_policy="count")
        usage = await _cut(Agent(model))
        assert usage.output.source is not Provenance.COUNTED
        assert usage.output.value
        assert not usage.is_provisional
