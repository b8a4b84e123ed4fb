"""A conversation in each provider's own words: what was cut, what was attached, what must fit a schema."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from typing import Any

import pytest

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.errors import RequestRejected
from quiesce.messages import (
    AssistantMessage,
    Audio,
    CutNote,
    Document,
    Image,
    Message,
    Outcome,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from quiesce.models.base import ModelRequest, ToolSpec
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.wire.convert import short_id

from .recordings import (
    ANSWER,
    ANTHROPIC,
    BEDROCK,
    GEMINI,
    KEY,
    OLLAMA,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    PROVIDERS,
    Provider,
)
from .wire import wire

pytestmark = pytest.mark.promise("P2")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)
PNG = b"\x89PNG\r\n\x1a\nnot really"
CALL = ToolCall("call_a", "look", {"where": "there"})
SEARCH = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"where": {"type": "string"}}})
# Everything that a stop can leave behind.
STOPPED: tuple[Message, ...] = (
    UserMessage(
        (Text("Look at this."), Image("image/png", PNG), Document("text/plain", b"Some notes.", name="notes.txt"))
    ),
    AssistantMessage((Reasoning("Half a thou", cut=True), CutNote("(Stopped.)")), cut=True),
    UserMessage((Text("Go on."),)),
    AssistantMessage(
        (Reasoning("Signed elsewhere", "SIGNATURE-OF-ANOTHER", provider_data={"provider": "nobody"}), CALL)
    ),
    ToolMessage(
        (ToolResult("call_a", "look", (Text("Not run."),), Outcome.NEVER_STARTED, is_error=True),),
    ),
    AssistantMessage((Text("I saw", cut=True), CutNote("(Stopped.)")), cut=True),
    UserMessage((Text("And?"),)),
)


def body_of(provider: Provider, request: ModelRequest, **more: Any) -> dict[str, Any]:
    return provider.make("http://127.0.0.1:9", **more).body(request)  # type: ignore[attr-defined]


def test_the_conversation_is_valid() -> None:
    assert not faults(STOPPED)


@each_provider
def test_what_a_stop_leaves_behind_can_be_sent(provider: Provider) -> None:
    sent = json.dumps(body_of(provider, ModelRequest(STOPPED, "Be brief.", (SEARCH,))), ensure_ascii=False)
    for said in ("Look at this.", "Some notes.", "(Stopped.)", "Go on.", "Not run.", "I saw", "And?", "Be brief."):
        assert said in sent or base64.b64encode(said.encode()).decode() in sent, said
    # What nobody signed, and what another provider signed, is not sent.
    assert "Half a thou" not in sent
    assert "SIGNATURE-OF-ANOTHER" not in sent
    assert base64.b64encode(PNG).decode() in sent


@each_provider
def test_no_message_is_empty_and_roles_alternate(provider: Provider) -> None:
    only_thought: tuple[Message, ...] = (
        UserMessage((Text("Hm?"),)),
        AssistantMessage((Reasoning("Only a thought"),)),
        UserMessage((Text("So?"),)),
    )
    for messages in (STOPPED, only_thought):
        body = body_of(provider, ModelRequest(messages))
        turns = body.get("messages") or body.get("contents") or body["input"]
        for turn in turns:
            if "role" in turn and "tool_calls" not in turn:
                assert turn.get("content") or turn.get("parts")
        if provider in (ANTHROPIC, BEDROCK, GEMINI):
            roles = [turn["role"] for turn in turns]
            assert all(one != two for one, two in itertools.pairwise(roles))


def test_results_of_tools_in_each_shape() -> None:
    request = ModelRequest(STOPPED[:5], tools=(SEARCH,))
    assert body_of(OPENAI_CHAT, request)["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "call_a",
        "content": "Not run.",
    }
    assert body_of(OPENAI_RESPONSES, request)["input"][-1] == {
        "type": "function_call_output",
        "call_id": "call_a",
        "output": "Not run.",
    }
    result = body_of(ANTHROPIC, request, cache=False)["messages"][-1]
    assert result["role"] == "user"
    assert result["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "call_a",
            "content": [{"type": "text", "text": "Not run."}],
            "is_error": True,
        }
    ]
    assert body_of(BEDROCK, request)["messages"][-1] == {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "call_a", "content": [{"text": "Not run."}], "status": "error"}}],
    }
    assert body_of(GEMINI, request)["contents"][-1] == {
        "role": "user",
        "parts": [{"functionResponse": {"name": "look", "response": {"error": "Not run."}, "id": "call_a"}}],
    }
    assert body_of(OLLAMA, request)["messages"][-1] == {"role": "tool", "tool_name": "look", "content": "Not run."}


@each_provider
def test_an_image_in_a_result(provider: Provider) -> None:
    shown = ToolResult("call_a", "look", (Text("Here."), Image("image/png", PNG)))
    messages = (UserMessage((Text("Look."),)), AssistantMessage((CALL,)), ToolMessage((shown,)))
    sent = json.dumps(body_of(provider, ModelRequest(messages)))
    assert sent.count(base64.b64encode(PNG).decode()) == 1


SHOWN = ToolResult("call_a", "look", (Text("Here."), Image("image/png", PNG), Audio("audio/mpeg", b"mp3")))


def test_attachments_inside_a_result_of_gemini_3() -> None:
    """google-genai 3.3: `FunctionResponse.parts`. What these may not hold stands beside the result, as for others."""
    from quiesce.models.providers.gemini import Gemini

    messages = (UserMessage((Text("Look."),)), AssistantMessage((CALL,)), ToolMessage((SHOWN,)))
    image = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
    audio = {"inlineData": {"mimeType": "audio/mpeg", "data": base64.b64encode(b"mp3").decode()}}
    answer = {"name": "look", "response": {"output": "Here."}, "id": "call_a"}
    for model, expected in (
        ("gemini-3-pro", [{"functionResponse": {**answer, "parts": [image]}}, audio]),
        ("gemini-2.5-flash", [{"functionResponse": answer}, image, audio]),
    ):
        assert Gemini(model, api_key=KEY).body(ModelRequest(messages))["contents"][-1]["parts"] == expected


def test_attachments_inside_a_result_of_mistral() -> None:
    """https://github.com/mistralai/mistral-vibe/issues/578: no user message may follow a tool message."""
    seen = ToolResult("call_a", "look", SHOWN.content[:2])
    messages = (UserMessage((Text("Look."),)), AssistantMessage((CALL,)), ToolMessage((seen,)))
    sent = OpenAIChat("mistral-medium-latest", server="mistral", api_key=KEY).body(ModelRequest(messages))["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert [part["type"] for part in sent[-1]["content"]] == ["text", "image_url"]


@each_provider
def test_a_pdf(provider: Provider) -> None:
    pdf = Document("application/pdf", b"%PDF-1.7 not really", name="report (final).pdf")
    request = ModelRequest((UserMessage((Text("Read."), pdf)),))
    if provider is OLLAMA:
        with pytest.raises(RequestRejected, match="application/pdf"):
            body_of(provider, request)
    else:
        assert base64.b64encode(b"%PDF-1.7 not really").decode() in json.dumps(body_of(provider, request))


@pytest.mark.parametrize("provider", [OPENAI_CHAT, BEDROCK], ids=str)
def test_a_document_by_address_where_that_is_not_possible(provider: Provider) -> None:
    async def main() -> None:
        agent = Agent(provider.make("http://127.0.0.1:9"))
        with pytest.raises(RequestRejected, match="by address"):
            await agent.invoke_async([Text("Read."), Document(url="https://example.com/a.pdf")])

    asyncio.run(main())


@each_provider
def test_structured_output_settings_and_the_body_of_ones_own(provider: Provider) -> None:
    schema = {"title": "T", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request = ModelRequest(STOPPED, output_schema=schema, settings={"temperature": 0.5, "max_tokens": 77})
    body = body_of(provider, request, extra_body={"mine": {"deep": 1}})
    assert body["mine"] == {"deep": 1}
    sent = json.dumps(body).replace("\\", "")
    assert '"city"' in sent
    assert "77" in sent
    where = {"bedrock": body.get("inferenceConfig"), "gemini": body.get("generationConfig")}.get(provider.name, body)
    if provider is OLLAMA:
        where = body["options"]
    assert where["temperature"] == 0.5


@each_provider
def test_headers_and_keys_on_the_wire(provider: Provider) -> None:
    async def main() -> None:
        async with wire(provider.answer.response) as server:
            model = provider.make(server.url, api_key=KEY, extra_headers={"x-mine": "yes"})
            assert (await Agent(model).invoke_async("Hello?")).text == ANSWER
            headers = server.requests[0].headers
            assert headers["x-mine"] == "yes"
            assert KEY in headers.get("authorization", "") + headers.get("x-api-key", "") + headers.get(
                "x-goog-api-key", ""
            )
            assert KEY not in server.requests[0].path

    asyncio.run(main())


def test_others_are_not_told_of_an_openai_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")

    async def main() -> None:
        async with wire(otherwise=OPENAI_CHAT.answer.response) as server:
            kinds = ("openai", "groq", "vllm")
            # All are held until the loop ends, which is when their connections are closed.
            agents = [Agent(OpenAIChat("m", server=kind, base_url=server.url, api_key=KEY)) for kind in kinds]
            for agent in agents:
                await agent.invoke_async("Hello?")
            of_error_object = ["org-mine" in str(request.headers) for request in server.requests]
            assert of_error_object == [True, False, False]
            assert "proj-mine" not in str(server.requests[1].headers)

    asyncio.run(main())


def test_usage_options_of_the_servers() -> None:
    def options(server: str) -> Any:
        return OpenAIChat("m", server=server, api_key=KEY, base_url="http://x").body(ModelRequest(STOPPED))

    assert options("openai")["stream_options"] == {"include_usage": True}
    assert options("vllm")["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert options("llamacpp")["timings_per_token"] is True
    assert options("openrouter")["usage"] == {"include": True}
    assert "stream_options" not in options("mistral")


def test_ids_for_mistral() -> None:
    body = OpenAIChat("m", server="mistral", api_key=KEY).body(ModelRequest(STOPPED[:5]))
    asked = body["messages"][-2]["tool_calls"][0]["id"]
    assert asked == body["messages"][-1]["tool_call_id"] == short_id("call_a")
    assert len(asked) == 9
    assert asked.isalnum()
    assert short_id("AbCdEf012") == "AbCdEf012"
    assert len({short_id(f"call_{number}") for number in range(10_000)}) == 10_000


def test_json_by_instruction_where_there_is_no_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = OpenAIChat("m", server="deepseek", api_key=KEY).body(
        ModelRequest(STOPPED, "Be brief.", output_schema=schema)
    )
    assert body["response_format"] == {"type": "json_object"}
    assert '"city"' in body["messages"][0]["content"]


def test_reasoning_goes_back_to_deepseek_in_a_tool_loop_only() -> None:
    thinking = AssistantMessage((Reasoning("Hm."), CALL))
    loop: tuple[Message, ...] = (UserMessage((Text("Look."),)), thinking, STOPPED[4])
    model = OpenAIChat("m", server="deepseek", api_key=KEY)
    assert model.body(ModelRequest(loop))["messages"][1]["reasoning_content"] == "Hm."
    later = (*loop, AssistantMessage((Text("Done."),)), UserMessage((Text("More."),)))
    assert "reasoning_content" not in model.body(ModelRequest(later))["messages"][1]


def test_what_anthropic_caches() -> None:
    request = ModelRequest(STOPPED, "Be brief.", (SEARCH,))
    body = body_of(ANTHROPIC, request, cache="1h")
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert body["tools"][-1]["cache_control"] == mark
    assert body["system"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(body_of(ANTHROPIC, request, cache=False))


def test_a_request_may_ask_for_caching_itself() -> None:
    request = ModelRequest(STOPPED, "Be brief.", (SEARCH,), cache="1h")
    body = body_of(ANTHROPIC, request, cache=False)
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in json.dumps(body_of(ANTHROPIC, ModelRequest(STOPPED, cache=False), cache=True))
    assert json.dumps(body_of(BEDROCK, request)).count("cachePoint") == 3


def _gemini(mode: str, **more: Any) -> dict[str, Any]:
    return {"functionCallingConfig": {"mode": mode, **more}}


SAME = {"auto": "auto", "none": "none", "required": "required"}
CHOICES: list[tuple[Provider, dict[str, Any]]] = [
    (OPENAI_CHAT, {**SAME, "look": {"type": "function", "function": {"name": "look"}}}),
    (OPENAI_RESPONSES, {**SAME, "look": {"type": "function", "name": "look"}}),
    (
        ANTHROPIC,
        {
            "auto": {"type": "auto"},
            "none": {"type": "none"},
            "required": {"type": "any"},
            "look": {"type": "tool", "name": "look"},
        },
    ),
    (BEDROCK, {"auto": {"auto": {}}, "required": {"any": {}}, "look": {"tool": {"name": "look"}}}),
    (
        GEMINI,
        {
            "auto": _gemini("AUTO"),
            "none": _gemini("NONE"),
            "required": _gemini("ANY"),
            "look": _gemini("ANY", allowedFunctionNames=["look"]),
        },
    ),
]


@pytest.mark.parametrize(("provider", "choices"), CHOICES, ids=[str(provider) for provider, _ in CHOICES])
def test_tool_choice_in_each_providers_words(provider: Provider, choices: dict[str, Any]) -> None:
    for choice, wanted in choices.items():
        body = body_of(provider, ModelRequest(STOPPED[:1], tools=(SEARCH,), tool_choice=choice))
        found = (
            body["toolConfig"] if provider is GEMINI else body.get("tool_choice") or body["toolConfig"]["toolChoice"]
        )
        assert found == wanted
    plain = body_of(provider, ModelRequest(STOPPED[:1], tools=(SEARCH,)))
    assert "tool_choice" not in plain
    assert "toolChoice" not in json.dumps(plain)
    with pytest.raises(RequestRejected, match="names no tool"):
        body_of(provider, ModelRequest(STOPPED[:1], tools=(SEARCH,), tool_choice="other"))
    with pytest.raises(RequestRejected, match="no tools"):
        body_of(provider, ModelRequest(STOPPED[:1], tool_choice="required"))


def test_tool_choices_that_a_provider_does_not_have() -> None:
    for provider, choice in ((BEDROCK, "none"), (OLLAMA, "required"), (OLLAMA, "look")):
        with pytest.raises(RequestRejected, match="has no tool_choice"):
            body_of(provider, ModelRequest(STOPPED[:1], tools=(SEARCH,), tool_choice=choice))
    assert "tools" not in body_of(OLLAMA, ModelRequest(STOPPED[:1], tools=(SEARCH,), tool_choice="none"))


def test_what_bedrock_caches_and_the_tools_that_it_must_be_told_of() -> None:
    body = body_of(BEDROCK, ModelRequest(STOPPED, "Be brief."), cache=True)
    assert json.dumps(body).count("cachePoint") == 3
    # The conversation uses a tool that is no longer offered; it would be refused without it.
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"


def test_aws_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")

    async def main() -> None:
        async with wire(BEDROCK.answer.response) as server:
            model = BEDROCK.make(server.url, api_key=None)
            assert (await Agent(model).invoke_async("Hello?")).text == ANSWER
            request = server.requests[0]
            assert request.path == BEDROCK.path
            authorization = request.headers["authorization"]
            assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
            assert "/us-east-1/bedrock/aws4_request" in authorization
            assert_signed(request.headers, request.path, request.body, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")

    asyncio.run(main())


def assert_signed(headers: dict[str, str], path: str, body: bytes, secret: str) -> None:
    """Checks a signature as AWS documents it, from what arrived."""
    import hashlib
    import hmac
    import re
    import urllib.parse

    found = re.search(r"Credential=([^,]+), SignedHeaders=([^,]+), Signature=(\w+)", headers["authorization"])
    assert found is not None
    credential, signed, signature = found.groups()
    _, date, region, service, _ = credential.split("/")
    canonical = "\n".join(
        [
            "POST",
            urllib.parse.quote(path, safe="/~"),
            "",
            *(f"{name}:{headers[name]}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    to_sign = "\n".join(
        ["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    assert hmac.new(key, to_sign.encode(), "sha256").hexdigest() == signature


def test_signatures_for_gemini_3() -> None:
    body = body_of(GEMINI, ModelRequest(STOPPED[:5]))
    assert "thoughtSignature" not in json.dumps(body)
    from quiesce.models.providers.gemini import Gemini

    newer = Gemini("gemini-3-pro", api_key=KEY).body(ModelRequest(STOPPED[:5]))
    assert newer["contents"][3]["parts"][-1]["thoughtSignature"]


@pytest.mark.promise("P2", "P8")
@pytest.mark.case("openai-agents-js#1241")
def test_no_conversation_lives_at_the_provider_so_a_stop_leaves_none_there_without_an_answer() -> None:
    body = body_of(OPENAI_RESPONSES, ModelRequest(STOPPED, tools=(SEARCH,)))
    assert not {"previous_response_id", "conversation"} & set(body)
    assert body["store"] is False
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    answers = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    assert calls == answers == ["call_a"]
