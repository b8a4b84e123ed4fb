"""Settings, under the name that each API has for them."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce import Agent
from quiesce.errors import RequestRejected
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest, ToolSpec, switches_thinking_on
from quiesce.models.providers.anthropic import Anthropic
from quiesce.models.providers.bedrock import Bedrock

from .recordings import (
    ANSWER,
    ANTHROPIC,
    BEDROCK,
    GEMINI,
    KEY,
    OLLAMA,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Provider,
)
from .test_hang_up import endless, first_words
from .wire import wire

pytestmark = pytest.mark.promise("P2")
ASKED = (UserMessage((Text("Hm?"),)),)
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


def body_of(provider: Provider, **request: Any) -> dict[str, Any]:
    return provider.make("http://127.0.0.1:9").body(ModelRequest(ASKED, **request))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("provider", "place"),
    [
        (OPENAI_CHAT, ("stop",)),
        (ANTHROPIC, ("stop_sequences",)),
        (BEDROCK, ("inferenceConfig", "stopSequences")),
        (GEMINI, ("generationConfig", "stopSequences")),
        (OLLAMA, ("options", "stop")),
    ],
    ids=str,
)
def test_stop_sequences(provider: Provider, place: tuple[str, ...]) -> None:
    body: Any = body_of(provider, settings={"stop_sequences": ["END"]})
    assert (place[0] == "stop_sequences") == ("stop_sequences" in body)
    for name in place:
        body = body[name]
    assert body == ["END"]


def test_an_api_without_stop_sequences_says_so() -> None:
    with pytest.raises(RequestRejected, match="stop_sequences"):
        body_of(OPENAI_RESPONSES, settings={"stop_sequences": ["END"]})


@pytest.mark.parametrize(
    ("provider", "settings"),
    [(OPENAI_CHAT, {"n": 2}), (GEMINI, {"generationConfig": {"candidateCount": 3}})],
    ids=str,
)
def test_more_answers_than_one_are_refused(provider: Provider, settings: dict[str, Any]) -> None:
    """All are billed, and one would be kept."""
    with pytest.raises(RequestRejected, match="answers"):
        body_of(provider, settings=settings)


@pytest.mark.parametrize(
    ("provider", "theirs"),
    [
        (OPENAI_RESPONSES, {"type": "web_search"}),
        (ANTHROPIC, {"type": "web_search_20250305", "name": "web_search"}),
        (GEMINI, {"googleSearch": {}}),
    ],
    ids=str,
)
def test_a_vendors_tools_are_added_to_those_of_the_agent(provider: Provider, theirs: dict[str, Any]) -> None:
    tools = body_of(provider, tools=(LOOK,), settings={"tools": [theirs]})["tools"]
    assert len(tools) == 2
    assert "look" in str(tools[0])
    assert tools[1].items() >= theirs.items()


def test_what_is_to_be_included_is_added() -> None:
    wanted = ["web_search_call.action.sources", "reasoning.encrypted_content"]
    included = body_of(OPENAI_RESPONSES, settings={"include": wanted})["include"]
    assert included == ["reasoning.encrypted_content", "web_search_call.action.sources"]


def test_bedrock_tools_are_added_inside_their_config() -> None:
    theirs = {"systemTool": {"name": "nova_grounding"}}
    tools = body_of(BEDROCK, tools=(LOOK,), settings={"toolConfig": {"tools": [theirs]}})["toolConfig"]["tools"]
    assert [next(iter(tool)) for tool in tools] == ["toolSpec", "systemTool"]


THINKING = {"type": "enabled", "budget_tokens": 16000}


def test_the_limit_of_an_answer_exceeds_the_budget_for_thinking() -> None:
    """anthropic 2.8, types/thinking_config_enabled_param.py: budget_tokens < max_tokens"""
    assert body_of(ANTHROPIC, settings={"thinking": THINKING})["max_tokens"] > 16000
    assert body_of(ANTHROPIC, settings={"thinking": THINKING}, max_tokens=20000)["max_tokens"] == 20000
    fields = {"additionalModelRequestFields": {"thinking": THINKING}}
    bedrock = body_of(BEDROCK, settings=fields, max_tokens=1000)
    assert bedrock["inferenceConfig"]["maxTokens"] == 17000


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        ({"thinking": THINKING}, True),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"additionalModelRequestFields": {"reasoning_config": THINKING}}, True),
        ({"reasoning_effort": "low"}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"temperature": 1}, False),
        (None, False),
    ],
)
def test_what_switches_thinking_on(settings: Any, on: bool) -> None:
    assert switches_thinking_on(settings) is on
    assert Anthropic("claude-sonnet-4-5", api_key=KEY, extra_body=settings).supports_prefill is not on
    bedrock = Bedrock("us.anthropic.claude-sonnet-4-5-v1:0", api_key=KEY, region="us-east-1", extra_body=settings)
    assert bedrock.supports_prefill is not on


@pytest.mark.parametrize("settings", [None, {"thinking": THINKING}], ids=["plain", "thinking"])
@pytest.mark.promise("P2", "P3")
async def test_an_answer_is_not_begun_for_a_model_that_thinks(settings: dict[str, Any] | None) -> None:
    async with wire(endless(ANTHROPIC), ANTHROPIC.answer.response) as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key=KEY)
        agent = Agent(model, settings=settings)
        run = agent.start("Count.")
        await first_words(run)
        run.cancel()
        await run.stopped()
        result = await agent.continue_async()
        sent = server.requests[-1].json["messages"]
        assert sent[-1]["role"] == ("assistant" if settings is None else "user")
        assert result.text.endswith(ANSWER)
