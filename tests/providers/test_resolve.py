"""From a name to a model, and the model that is there when none is named."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from quiesce import Agent
from quiesce.errors import AuthenticationFailed, ConfigurationError, MissingExtra, UnknownModel
from quiesce.models import resolve
from quiesce.models.providers import local
from quiesce.models.providers.compatible import SERVERS, vocabulary_of
from quiesce.models.providers.gemini import Gemini
from quiesce.models.providers.ollama import ollama_address
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.providers.openai_responses import OpenAIResponses
from quiesce.models.resolve import DEFAULTS, model_named, resolve_model
from quiesce.models.scripted import ScriptedModel
from quiesce.models.wire import extra as extras
from quiesce.usage.estimate import vocabulary

from .wire import refused, sse, streamed, wire

pytestmark = pytest.mark.feature


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = (name for server in SERVERS.values() for name in (server.key, server.address) if name)
    for name in (*servers, *(key for key, _ in DEFAULTS), "QUIESCE_MODEL", "OLLAMA_HOST", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    # Nobody is at these addresses.
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("LLAMACPP_BASE_URL", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("name", "key", "policy", "tokenizer"),
    [
        ("openai:gpt-5.4-mini", "OPENAI_API_KEY", "hang_up", "openai"),
        ("openai-responses:gpt-5.4", "OPENAI_API_KEY", "hang_up", "openai"),
        ("openai-chat:gpt-5.4", "OPENAI_API_KEY", "hang_up", "openai"),
        ("perplexity:sonar", "PERPLEXITY_API_KEY", "hang_up", None),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY", "hang_up", "claude"),
        ("gemini:gemini-2.5-flash", "GEMINI_API_KEY", "drain", "gemma"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY", "drain", "gemma"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-v1:0", "AWS_BEARER_TOKEN_BEDROCK", "drain", "claude"),
        ("openrouter:meta-llama/llama-3.3-70b", "OPENROUTER_API_KEY", "lookup", "llama3"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY", "hang_up", "deepseek"),
        ("mistral:mistral-medium-latest", "MISTRAL_API_KEY", "hang_up", "mistral"),
        ("groq:qwen/qwen3-32b", "GROQ_API_KEY", "hang_up", "qwen"),
        ("xai:grok-4", "XAI_API_KEY", "hang_up", None),
        ("together:Qwen/Qwen3-32B", "TOGETHER_API_KEY", "hang_up", "qwen"),
        ("litellm:anything", "LITELLM_API_KEY", "hang_up", None),
        ("vllm:meta-llama/Llama-3.1-8B-Instruct", "UNUSED", "hang_up", "llama3"),
        ("llamacpp:smollm2", "UNUSED", "hang_up", "smollm2"),
        ("ollama:llama3.2", "UNUSED", "hang_up", "llama3"),
    ],
)
def test_names(name: str, key: str, policy: str, tokenizer: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key, "a-key-for-this-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    model = model_named(name)
    expected = name.replace("google:", "gemini:").replace("openai-responses:", "openai:")
    assert model.name == expected
    assert model.price is None
    assert (model.stop_policy, model.tokenizer) == (policy, tokenizer)  # type: ignore[attr-defined]
    assert "a-key-for-this-test" not in repr(model)
    assert Agent(model).name == "agent"


def test_azure_has_its_address_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "x" * 10)
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT"):
        model_named("azure:my-deployment")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    for name in ("azure", "azure-responses"):
        assert model_named(f"{name}:my-deployment").base_url == "https://mine.openai.azure.com/openai/v1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("groq", "/openai/v1"),
        ("together", "/v1"),
        ("fireworks", "/v1"),
        ("cerebras", "/v1"),
        ("perplexity", "/v1"),
    ],
)
def test_the_variable_with_an_address_means_what_the_vendors_sdk_makes_of_it(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """groq 1.7, together 3.1, fireworks-ai 1.2, cerebras-cloud-sdk 1.91, perplexityai 0.46: `_client.py`.

    Their addresses end with the host, and the SDK adds the rest.
    """
    server = SERVERS[name]
    monkeypatch.setenv(server.key or "", "x" * 10)
    for given in ("http://gateway", "http://gateway/", f"http://gateway{path}"):
        monkeypatch.setenv(server.address or "", given)
        model: Any = model_named(f"{name}:x")
        assert model.base_url == f"http://gateway{path}"


def test_azure_takes_a_token_of_entra_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "entra-token-0123")
    model = OpenAIChat("mine", server="azure", base_url="http://127.0.0.1:9/openai/v1")
    assert model._headers["authorization"] == "Bearer entra-token-0123"  # pyright: ignore[reportPrivateUsage]


def test_openai_means_the_api_that_openai_recommends() -> None:
    """https://platform.openai.com/docs/guides/migrate-to-responses"""
    assert isinstance(model_named("openai:gpt-5", api_key="x"), OpenAIResponses)
    assert isinstance(model_named("openai-chat:gpt-5", api_key="x"), OpenAIChat)


@pytest.mark.parametrize("name", ["nobody:model", "gpt-4o", "openai:", ":x", ""])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(UnknownModel, match="provider:model"):
        Agent(name)


def test_a_model_is_passed_on() -> None:
    model = ScriptedModel("Hello.")
    assert resolve_model(model) is model
    with pytest.raises(ConfigurationError, match="not a model"):
        resolve_model(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["openai:x", "anthropic:x", "gemini:x", "mistral:x"])
def test_a_key_that_is_missing(name: str) -> None:
    with pytest.raises(AuthenticationFailed, match="_API_KEY"):
        Agent(name)


def test_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigurationError, match="AWS_REGION"):
        Agent("bedrock:anthropic.claude")


def test_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"quiesce\[bedrock\]"):
        Agent("bedrock:x")


# --- None was named ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "name"), DEFAULTS)
def test_a_key_in_the_environment_comes_first(key: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key, "a-key")
    assert resolve_model(None).name == name


def test_the_wish_in_the_environment_comes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("QUIESCE_MODEL", "ollama:qwen3")
    assert resolve_model(None).name == "ollama:qwen3"


def test_a_running_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = refused(200, {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest"}]})

    async def main() -> None:
        async with wire(otherwise=tags) as server:
            monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.port}")
            model = await asyncio.to_thread(resolve_model, None)
            assert model.name == "ollama:llama3.2:latest"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box:99", "http://box:99"),
        ("box", "http://box:11434"),
        ("box/ollama/", "http://box:11434/ollama"),
        (":99", "http://127.0.0.1:99"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:99", "http://[::1]:99"),
        ("https://box", "https://box"),
    ],
)
def test_what_ollama_host_may_say(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert ollama_address() == address


def test_a_running_llamacpp(monkeypatch: pytest.MonkeyPatch) -> None:
    models = refused(200, {"object": "list", "data": [{"id": "qwen3-4b", "object": "model", "owned_by": "llamacpp"}]})

    async def main() -> None:
        async with wire(otherwise=models) as server:
            monkeypatch.setenv("LLAMACPP_BASE_URL", f"{server.url}/v1")
            model = await asyncio.to_thread(resolve_model, None)
            assert model.name == "llamacpp:qwen3-4b"

    asyncio.run(main())


def test_something_else_on_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with wire(otherwise=refused(200, b"<html>a web page</html>")) as server:
            monkeypatch.setenv("LLAMACPP_BASE_URL", f"{server.url}/v1")
            monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.port}")
            monkeypatch.setattr(local, "is_available", lambda: False)
            with pytest.raises(UnknownModel):
                await asyncio.to_thread(resolve_model, None)

    asyncio.run(main())


def test_the_local_model_and_then_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wished: list[str] = []
    monkeypatch.setattr(resolve, "model_named", lambda name: wished.append(name) or ScriptedModel("Hello."))
    monkeypatch.setattr(local, "is_available", lambda: True)
    resolve_model(None)
    assert wished == ["local:smollm2"]
    monkeypatch.setattr(local, "is_available", lambda: False)
    with pytest.raises(UnknownModel) as caught:
        Agent()
    for way in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "QUIESCE_MODEL", "Ollama", "llama.cpp", "quiesce[local]"):
        assert way in str(caught.value)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = "import sys, json, quiesce; print(json.dumps([name for name in sys.modules]))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    assert not {"openai", "anthropic", "botocore", "xllamacpp", "httpcore2"} & set(loaded)


@pytest.mark.parametrize("name", ["openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-sonnet-5", "vllm:qwen3"])
def test_an_agent_loads_no_vendors_sdk(name: str) -> None:
    script = f"import sys, json; from quiesce import Agent; Agent({name!r}); print(json.dumps(list(sys.modules)))"
    keys = {**os.environ, "OPENAI_API_KEY": "a-key", "ANTHROPIC_API_KEY": "a-key"}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=keys)
    assert not {"openai", "anthropic", "botocore", "boto3"} & set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    ("model", "family"),
    [("gpt-4o", "openai"), ("gpt-4-turbo", "openai"), ("openai/gpt-oss-20b", "openai"), ("who-knows", None)],
)
def test_vocabularies(model: str, family: str | None) -> None:
    assert vocabulary_of(model) == family


@pytest.mark.promise("P6")
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, Gemini])
@pytest.mark.parametrize("model", ["my-finetune", "gpt-neox-20b"])
def test_an_unknown_model_at_an_address_of_ones_own_has_no_known_vocabulary(kind: Any, model: str) -> None:
    own = kind(model, base_url="http://127.0.0.1:9/v1", api_key="none")
    assert vocabulary.vocabulary_of(model, own.tokenizer) is None
    known = kind("gemma-3-27b", base_url="http://127.0.0.1:9/v1", api_key="none")
    assert known.tokenizer == "gemma"


@pytest.mark.promise("P6")
def test_what_an_unknown_model_says_is_a_rule_of_thumb_that_holds_the_truth() -> None:
    words = [f"word{number} " for number in range(20)] + ["naïveté "] * 10  # a token each, in its own vocabulary
    events = [sse({"id": "a", "choices": [{"index": 0, "delta": {"content": word}}]}) for word in words]

    async def main() -> None:
        ended = sse({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        async with wire(streamed([*events, ended, sse("[DONE]")], "text/event-stream")) as server:
            model = OpenAIChat("my-finetune", base_url=f"{server.url}/v1", api_key="none")
            used = (await Agent(model).invoke_async("hi")).usage.output
            assert used.source == "heuristic"
            assert used.low <= 30 <= (used.high or 30)

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_openai_s_own_address_in_the_environment_is_not_an_address_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1/")
    assert OpenAIChat("ft-of-mine", api_key="none").tokenizer == "o200k"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert OpenAIChat("ft-of-mine", api_key="none").tokenizer is None
