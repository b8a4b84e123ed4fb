"""Servers that speak OpenAI's Chat Completions, and what is different about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from ..base import StopPolicyName


class Server(Struct, frozen=True):
    """One kind of server.

    base_url         its usual address, if it has one
    key              the environment variable with its key; None when it needs none
    other_keys       other variables that its SDK takes a key from
    address          the environment variable with its address, where one is usual
    path             what follows a host in such a variable, because its SDK adds it too
    body             what every request carries besides: above all, how to ask for usage
    stop_policy      what a stop does about a request
    tokenizer        the vocabulary of the models at its usual address, where all have the same
    max_tokens       what the limit on an answer is called
    structured       how an answer is made to fit a schema
    rich_results     whether tool messages may hold images and documents; a user message may not follow them then
    short_ids        whether call ids must be nine letters and digits
    reasoning_field  the field in which reasoning is taken back during a tool loop, if it is
    prefill          what a request carries that ends in the beginning of its answer; None when it may not end so
    documents        how it takes documents: as a file, as a file or by address, or as a "document_url"
    effort           where it takes how long to think: a field, or one inside "reasoning"; None when it does not
    tiers            whether it has service tiers
    after_hang_up    tokens that it still writes after a hang-up, because it notices only with the next one
    """

    label: str
    base_url: str | None = None
    key: str | None = None
    address: str | None = None
    other_keys: tuple[str, ...] = ()
    path: str = ""
    body: Mapping[str, Any] = {}
    stop_policy: StopPolicyName = "hang_up"
    tokenizer: str | None = None
    max_tokens: str = "max_tokens"
    structured: Literal["json_schema", "json_object"] = "json_schema"
    rich_results: bool = False
    short_ids: bool = False
    reasoning_field: str | None = None
    prefill: Mapping[str, Any] | None = None
    documents: Literal["file", "file or url", "document_url"] = "file"
    effort: Literal["reasoning_effort", "reasoning"] | None = "reasoning_effort"
    tiers: bool = True
    after_hang_up: float = 0.0


_USAGE_AT_END: Final[Mapping[str, Any]] = {"stream_options": {"include_usage": True}}
_USAGE_ALWAYS: Final[Mapping[str, Any]] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

SERVERS: Final[Mapping[str, Server]] = {
    "openai": Server(
        "OpenAI",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        body=_USAGE_AT_END,
        tokenizer="o200k",
        max_tokens="max_completion_tokens",
    ),
    "azure": Server(
        "Azure OpenAI",
        None,
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_ENDPOINT",
        other_keys=("AZURE_OPENAI_AD_TOKEN",),
        path="/openai/v1",
        body=_USAGE_AT_END,
        max_tokens="max_completion_tokens",
    ),
    "openrouter": Server(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        body={"usage": {"include": True}},
        stop_policy="lookup",
        documents="file or url",
        effort="reasoning",
    ),
    "deepseek": Server(
        "DeepSeek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        body=_USAGE_AT_END,
        tokenizer="deepseek",
        structured="json_object",
        tiers=False,
        reasoning_field="reasoning_content",
    ),
    "mistral": Server(
        "Mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        tokenizer="mistral",
        rich_results=True,
        short_ids=True,
        documents="document_url",
        tiers=False,
    ),
    "groq": Server(
        "Groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        "GROQ_BASE_URL",
        path="/openai/v1",
        body=_USAGE_AT_END,
        max_tokens="max_completion_tokens",
    ),
    "xai": Server("xAI", "https://api.x.ai/v1", "XAI_API_KEY", body=_USAGE_AT_END),
    "together": Server(
        "Together",
        "https://api-inference.together.ai/v1",
        "TOGETHER_API_KEY",
        "TOGETHER_BASE_URL",
        path="/v1",
        body=_USAGE_AT_END,
    ),
    "fireworks": Server(
        "Fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "FIREWORKS_BASE_URL",
        path="/v1",
        body=_USAGE_AT_END,
    ),
    "cerebras": Server(
        "Cerebras",
        "https://api.cerebras.ai/v1",
        "CEREBRAS_API_KEY",
        "CEREBRAS_BASE_URL",
        path="/v1",
        body=_USAGE_AT_END,
        max_tokens="max_completion_tokens",
    ),
    "perplexity": Server(
        "Perplexity", "https://api.perplexity.ai/v1", "PERPLEXITY_API_KEY", "PERPLEXITY_BASE_URL", path="/v1"
    ),
    "huggingface": Server("Hugging Face", "https://router.huggingface.co/v1", "HF_TOKEN", body=_USAGE_AT_END),
    "github": Server("GitHub Models", "https://models.github.ai/inference", "GITHUB_TOKEN", body=_USAGE_AT_END),
    # Its address holds the account: https://<account>.snowflakecomputing.com/api/v2/cortex/v1
    "snowflake": Server("Snowflake Cortex", None, "SNOWFLAKE_PAT", "SNOWFLAKE_BASE_URL"),
    "lmstudio": Server(
        "LM Studio", "http://localhost:1234/v1", None, "LMSTUDIO_BASE_URL", body=_USAGE_AT_END, tiers=False
    ),
    "litellm": Server(
        "LiteLLM proxy", "http://localhost:4000", "LITELLM_API_KEY", "LITELLM_BASE_URL", body=_USAGE_AT_END
    ),
    "vllm": Server(
        "vLLM",
        "http://localhost:8000/v1",
        None,
        "VLLM_BASE_URL",
        body=_USAGE_ALWAYS,
        tiers=False,
        prefill={"continue_final_message": True, "add_generation_prompt": False},
    ),
    "llamacpp": Server(
        "llama.cpp",
        "http://localhost:8080/v1",
        None,
        "LLAMACPP_BASE_URL",
        # With its timings on each chunk, the number of tokens of a stream that is cut is known. It notices a closed
        # connection only when it sends something, so it is made to report the progress of reading the prompt.
        body={**_USAGE_AT_END, "timings_per_token": True, "return_progress": True},
        # The token that it is at when the connection closes, and often the one after that.
        after_hang_up=1.5,
        effort=None,
        tiers=False,
    ),
    "ollama-chat": Server(
        "Ollama", "http://localhost:11434/v1", None, "OLLAMA_BASE_URL", body=_USAGE_AT_END, tiers=False
    ),
}

# The first letters of model names that tell the vocabulary, on any server.
_FAMILIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("openai", ("gpt-", "chatgpt-", "o1", "o3", "o4")),
    ("claude", ("claude", "anthropic.")),
    ("llama3", ("meta-llama", "llama-3", "llama3")),
    ("qwen", ("qwen", "qwq")),
    ("deepseek", ("deepseek",)),
    ("mistral", ("mistral", "magistral", "codestral")),
    ("kimi", ("kimi", "moonshot")),
    ("glm", ("glm",)),
    ("gemma", ("gemma", "gemini")),
    ("smollm2", ("smollm2",)),
)


def vocabulary_of(model: str, server: Server | None = None, address: str | None = None) -> str | None:
    """The family of a model's vocabulary, from its name; None when that says nothing.

    At its usual address, a server tells the vocabulary too. At any other there may be any model.
    """
    known = model.lower()
    bare = known.rpartition("/")[2]
    for family, starts in _FAMILIES:
        if bare.startswith(starts) or known.startswith(starts):
            return family
    at_home = server is not None and server.base_url is not None and (address or "").rstrip("/") == server.base_url
    return server.tokenizer if server is not None and at_home else None
