"""Tools that a provider runs, and settings that all have: what each vendor is sent, and an error where it has none.

The wire formats are those of these clients and pages:
  OpenAI      openai 3.49: types/responses/web_search_tool_param.py, types/shared_params/reasoning.py
  Anthropic   anthropic 2.8: types/web_search_tool_20250305_param.py, types/output_config_param.py,
              types/message_create_params.py
  Gemini      google-genai 3.3: types.py (`Tool`, `ThinkingConfig`, `service_tier`)
  Bedrock     https://docs.aws.amazon.com/nova/latest/userguide/grounding.html; the rest from botocore
  Groq        groq 1.7: types/chat/chat_completion_tool_param.py
  Perplexity  perplexityai 0.46: types/response_create_params.py
  xAI, OpenRouter: their pages on tools were not among those that could be read, so these two are not confirmed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, CodeExecution, FileSearch, Settings, WebSearch, tool
from quiesce.errors import ConfigurationError, RequestRejected
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.resolve import model_named
from quiesce.models.scripted import ScriptedModel

from .recordings import ANTHROPIC, KEY
from .wire import wire

pytestmark = pytest.mark.promise("P4")
ASKED = (UserMessage((Text("What colour?"),)),)
VENDORS = {
    "openai:gpt-5.6": {},
    "xai-responses:grok-4": {},
    "anthropic:claude-sonnet-5": {},
    "anthropic:claude-sonnet-4-5": {},
    "gemini:gemini-3-pro": {},
    "gemini:gemini-2.5-flash": {},
    "bedrock:anthropic.claude-sonnet-5": {"region": "us-east-1"},
    "bedrock:amazon.nova-2-lite-v1:0": {"region": "us-east-1"},
    "bedrock:meta.llama4-scout": {"region": "us-east-1"},
    "openai-chat:gpt-5.6": {},
    "openai-chat:gpt-4o": {},
    "xai:grok-4": {},
    "openrouter:some-model": {},
    "groq:openai/gpt-oss-120b": {},
    "perplexity:sonar": {},
    "mistral:mistral-medium-latest": {},
    "ollama:gpt-oss": {"api_key": "x"},
    "llamacpp:some-model": {},
}


@functools.cache
def model_of(vendor: str) -> Any:
    return model_named(vendor, **{"api_key": KEY, **VENDORS[vendor]})


def body(vendor: str, **request: Any) -> dict[str, Any]:
    made: dict[str, Any] = model_of(vendor).body(ModelRequest(ASKED, **request))
    return made


def added(vendor: str, **request: Any) -> dict[str, Any]:
    """What the request carries besides what it always does."""
    plain = body(vendor)
    return {name: value for name, value in body(vendor, **request).items() if plain.get(name) != value}


@pytest.mark.parametrize(
    ("vendor", "tools", "sent"),
    [
        ("openai:gpt-5.6", [WebSearch()], [{"type": "web_search"}]),
        (
            "openai:gpt-5.6",
            [WebSearch(allowed_domains=("a.org",)), FileSearch(("vs_1",))],
            [
                {"type": "web_search", "filters": {"allowed_domains": ("a.org",)}},
                {"type": "file_search", "vector_store_ids": ("vs_1",)},
            ],
        ),
        ("openai:gpt-5.6", [CodeExecution()], [{"type": "code_interpreter", "container": {"type": "auto"}}]),
        ("xai-responses:grok-4", [CodeExecution()], [{"type": "code_interpreter"}]),
        (
            "anthropic:claude-sonnet-5",
            [WebSearch(blocked_domains=("b.org",), max_uses=3), CodeExecution()],
            [
                {"type": "web_search_20250305", "name": "web_search", "blocked_domains": ("b.org",), "max_uses": 3},
                {"type": "code_execution_20250825", "name": "code_execution"},
            ],
        ),
        ("gemini:gemini-3-pro", [WebSearch(), CodeExecution()], [{"googleSearch": {}}, {"codeExecution": {}}]),
        ("gemini:gemini-3-pro", [FileSearch(("s",))], [{"fileSearch": {"fileSearchStoreNames": ("s",)}}]),
        (
            "openrouter:some-model",
            [WebSearch(blocked_domains=("b.org",))],
            [{"type": "openrouter:web_search", "parameters": {"excluded_domains": ("b.org",)}}],
        ),
        (
            "groq:openai/gpt-oss-120b",
            [WebSearch(), CodeExecution()],
            [{"type": "browser_search"}, {"type": "code_interpreter"}],
        ),
        (
            "perplexity:sonar",
            [WebSearch(blocked_domains=("b.org",)), CodeExecution()],
            [{"type": "web_search", "filters": {"search_domain_filter": ["-b.org"]}}, {"type": "sandbox"}],
        ),
    ],
)
def test_what_a_vendor_is_sent_for_its_tools(vendor: str, tools: list[Any], sent: list[Any]) -> None:
    assert added(vendor, server_tools=tuple(tools)) == {"tools": sent}


def test_vendors_that_have_them_elsewhere_in_a_request() -> None:
    both = (WebSearch(), CodeExecution())
    nova = added("bedrock:amazon.nova-2-lite-v1:0", server_tools=both)
    names = [{"systemTool": {"name": name}} for name in ("nova_grounding", "nova_code_interpreter")]
    assert nova == {"toolConfig": {"tools": names}}


@pytest.mark.parametrize(
    ("vendor", "given", "words"),
    [
        ("openai-chat:gpt-5.6", WebSearch(), "openai:"),
        ("perplexity:sonar", FileSearch(("s",)), "Perplexity has no FileSearch."),
        ("xai:grok-4", WebSearch(), "xai-responses:"),
        ("anthropic:claude-sonnet-5", FileSearch(("s",)), "Anthropic has no FileSearch."),
        ("bedrock:anthropic.claude-sonnet-5", WebSearch(), "Bedrock has no WebSearch."),
        ("mistral:mistral-medium-latest", CodeExecution(), "Mistral has no CodeExecution."),
        ("ollama:gpt-oss", WebSearch(), "Ollama has no WebSearch."),
        ("gemini:gemini-3-pro", WebSearch(allowed_domains=("a.org",)), "allowed_domains"),
        ("openai:gpt-5.6", WebSearch(max_uses=1), "max_uses"),
        ("anthropic:claude-sonnet-5", WebSearch(("a.org",), ("b.org",)), "both allowed and blocked"),
    ],
)
def test_a_tool_that_a_vendor_has_not_is_an_error_before_there_is_a_run(vendor: str, given: Any, words: str) -> None:
    model = model_of(vendor)
    with pytest.raises(ConfigurationError, match=words):
        Agent(model, tools=[given])
    scripted = Agent(ScriptedModel("Blue."), tools=[given])  # a model of one's own finds it in the request
    assert scripted("What colour?").text == "Blue."
    with pytest.raises(ConfigurationError, match=words):
        scripted("What colour?", model=model)


def test_they_are_sent_beside_the_agents_own_and_per_call() -> None:
    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return city

    async def main() -> None:
        async with wire(otherwise=ANTHROPIC.answer.response) as server:
            agent = Agent(ANTHROPIC.make(server.url), tools=[weather, WebSearch()])
            assert list(agent.tools) == ["weather"]
            await agent.invoke_async("What colour?")
            await agent.invoke_async("What colour?", tools=[CodeExecution()])
            agent.add_tools(CodeExecution())
            await agent.invoke_async("What colour?")
            sent = [[each["name"] for each in request.json["tools"]] for request in server.requests]
            assert sent == [
                ["weather", "web_search"],
                ["code_execution"],
                ["weather", "web_search", "code_execution"],
            ]

    asyncio.run(main())


# --- Settings that all have ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "settings", "sent"),
    [
        ("openai:gpt-5.6", {"effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("openai-chat:gpt-5.6", {"effort": "none"}, {"reasoning_effort": "none"}),
        ("openrouter:some-model", {"effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            "anthropic:claude-sonnet-5",
            {"effort": "xhigh"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
        ),
        ("anthropic:claude-sonnet-5", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            "anthropic:claude-sonnet-4-5",
            {"effort": "medium"},
            {"thinking": {"type": "enabled", "budget_tokens": 8192}, "max_tokens": 16384},
        ),
        ("gemini:gemini-3-pro", {"effort": "low"}, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}),
        (
            "gemini:gemini-2.5-flash",
            {"effort": "none"},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        ),
        (
            "bedrock:amazon.nova-2-lite-v1:0",
            {"effort": "high"},
            {"additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}},
        ),
        ("ollama:gpt-oss", {"effort": "high"}, {"think": "high"}),
        ("ollama:gpt-oss", {"effort": "none"}, {"think": False}),
        ("openai:gpt-5.6", {"service_tier": "flex"}, {"service_tier": "flex"}),
        ("anthropic:claude-sonnet-5", {"service_tier": "default"}, {"service_tier": "standard_only"}),
        ("gemini:gemini-3-pro", {"service_tier": "priority"}, {"serviceTier": "priority"}),
        ("bedrock:anthropic.claude-sonnet-5", {"service_tier": "flex"}, {"serviceTier": {"type": "flex"}}),
        ("openai:gpt-5.6", {"cache": False}, {"prompt_cache_options": {"mode": "explicit"}}),
        ("openai-chat:gpt-4o", {"cache": True}, {}),
        ("gemini:gemini-3-pro", {"cache": True}, {}),
    ],
)
def test_what_a_vendor_is_sent_for_a_setting_that_all_have(vendor: str, settings: Settings, sent: Any) -> None:
    assert added(vendor, settings=settings) == sent


def test_prompt_caching_by_a_setting() -> None:
    marked = '"cache_control": {"type": "ephemeral"'
    claude: Callable[..., str] = lambda **more: json.dumps(body("anthropic:claude-sonnet-5", **more))  # noqa: E731
    assert marked in claude()
    assert marked not in claude(settings={"cache": False})
    assert f'{marked}, "ttl": "1h"}}' in claude(settings={"cache": "1h"})
    assert marked in claude(settings={"cache": True}, cache=False)  # the setting is the user's own word
    nova = body("bedrock:amazon.nova-2-lite-v1:0", settings={"cache": "1h"})
    assert nova["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


@pytest.mark.parametrize(
    ("vendor", "settings"),
    [
        ("anthropic:claude-sonnet-5", {"effort": "minimal"}),
        ("anthropic:claude-sonnet-5", {"service_tier": "flex"}),
        ("gemini:gemini-3-pro", {"effort": "none"}),
        ("gemini:gemini-3-pro", {"cache": False}),
        ("bedrock:meta.llama4-scout", {"effort": "low"}),
        ("llamacpp:some-model", {"effort": "low"}),
        ("llamacpp:some-model", {"service_tier": "flex"}),
        ("ollama:gpt-oss", {"service_tier": "flex"}),
        ("ollama:gpt-oss", {"effort": "max"}),
        ("openai-chat:gpt-4o", {"cache": False}),
        ("openai:gpt-5.6", {"effort": "much"}),
    ],
)
def test_a_setting_that_a_vendor_has_not_is_refused_before_it_is_sent(vendor: str, settings: Settings) -> None:
    (name,) = settings
    with pytest.raises(RequestRejected, match=f"has no {name}=.*Nothing was sent"):
        body(vendor, settings=settings)


# --- The table in docs/providers.md ----------------------------------------------------------------------------------


def cell(vendor: str, **request: Any) -> str:
    try:
        found = body(vendor, **request)
    except (ConfigurationError, RequestRejected):
        return ""
    plain = body(vendor)
    return "yes" if found != plain else "always"


def vendor_table() -> str:
    """Which vendor has what, as a table in Markdown."""
    tools = {"WebSearch": WebSearch(), "CodeExecution": CodeExecution(), "FileSearch": FileSearch(("s",))}
    efforts = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    tiers = ("auto", "default", "flex", "priority")
    lines = [
        f"| model | {' | '.join(f'`{name}`' for name in tools)} | `effort` | `service_tier` | `cache=False` |",
        "|---|---|---|---|---|---|---|",
    ]
    for vendor in VENDORS:
        cells = [cell(vendor, server_tools=(each,)) for each in tools.values()]
        for name, values in (("effort", efforts), ("service_tier", tiers)):
            cells.append(", ".join(each for each in values if cell(vendor, settings={name: each}) == "yes"))
        cells.append(cell(vendor, settings={"cache": False}).replace("always", "yes"))
        lines.append(f"| `{vendor}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_table_of_the_page_is_what_is_sent() -> None:
    """`QUIESCE_WRITE_TABLES=1` writes it."""
    page = Path(__file__).parents[2] / "docs" / "providers.md"
    start, end = "<!-- vendors -->\n", "<!-- end of vendors -->"
    before, _, rest = page.read_text().partition(start)
    written, _, after = rest.partition(end)
    if os.environ.get("QUIESCE_WRITE_TABLES"):
        page.write_text(f"{before}{start}\n{vendor_table()}\n\n{end}{after}")
    else:
        assert written.strip() == vendor_table()
