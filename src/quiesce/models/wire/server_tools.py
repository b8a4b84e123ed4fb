"""Server tools in each provider's words: what a request carries so that the provider runs them.

Each function raises `ConfigurationError` for a tool, or an option of it, that the provider does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ...errors import ConfigurationError
from ..server_tools import CodeExecution, FileSearch, ServerTool, WebSearch

# Claude's tools have dates. These versions are taken by all models that have the tool; later ones add options.
_WEB_SEARCH: Final = "web_search_20250305"
_CODE_EXECUTION: Final = "code_execution_20250825"


def none_of(label: str, tool: ServerTool, instead: str = "") -> ConfigurationError:
    """The error for a tool that a provider does not have."""
    todo = instead or "Leave it out, or use a model of a provider that has it."
    return ConfigurationError(f"{label} has no {type(tool).__name__}.", todo=todo)


def for_anthropic(tools: Iterable[ServerTool]) -> Iterator[dict[str, Any]]:
    """Claude's."""
    for tool in tools:
        match tool:
            case WebSearch():
                named = {"type": _WEB_SEARCH, "name": "web_search"}
                yield named | _options(tool, "Anthropic", "allowed_domains", "blocked_domains", "max_uses")
            case CodeExecution():
                yield {"type": _CODE_EXECUTION, "name": "code_execution"}
            case FileSearch():
                raise none_of("Anthropic", tool)


def for_responses(tools: Iterable[ServerTool], label: str) -> Iterator[dict[str, Any]]:
    """Those of OpenAI's Responses API, which xAI has under the same names."""
    for tool in tools:
        match tool:
            case WebSearch():
                filters = _options(tool, label, "allowed_domains")
                yield {"type": "web_search"} | ({"filters": filters} if filters else {})
            case CodeExecution():
                container = {"container": {"type": "auto"}} if label == "OpenAI" else {}
                yield {"type": "code_interpreter", **container}
            case FileSearch(stores):
                yield {"type": "file_search", "vector_store_ids": stores}


def for_gemini(tools: Iterable[ServerTool]) -> Iterator[dict[str, Any]]:
    """Gemini's."""
    for tool in tools:
        match tool:
            case WebSearch():
                yield {"googleSearch": _options(tool, "Gemini")}
            case CodeExecution():
                yield {"codeExecution": {}}
            case FileSearch(stores):
                yield {"fileSearch": {"fileSearchStoreNames": stores}}


def for_bedrock(tools: Iterable[ServerTool], model: str) -> Iterator[dict[str, Any]]:
    """Those that Nova has on Bedrock. Claude has none there."""
    for tool in tools:
        if "nova" not in model or isinstance(tool, FileSearch):
            raise none_of("Bedrock", tool, "Use a Nova model there, or Claude at Anthropic.")
        if isinstance(tool, WebSearch):
            _options(tool, "Bedrock")
        yield {"systemTool": {"name": "nova_grounding" if isinstance(tool, WebSearch) else "nova_code_interpreter"}}


def for_chat(tools: Iterable[ServerTool], server: str, label: str) -> Iterator[dict[str, Any]]:
    """Those of servers that speak Chat Completions."""
    for tool in tools:
        match server, tool:
            case "openrouter", WebSearch():
                wanted = _options(tool, label, "allowed_domains", "blocked_domains")
                parameters = {name.replace("blocked", "excluded"): value for name, value in wanted.items()}
                yield {"type": "openrouter:web_search"} | ({"parameters": parameters} if parameters else {})
            case "groq", WebSearch():
                _options(tool, label)
                yield {"type": "browser_search"}
            case "groq", CodeExecution():
                yield {"type": "code_interpreter"}
            case "openai-chat" | "azure", _:
                todo = 'Use the Responses API: "openai:..." or "azure-responses:...".'
                raise none_of(f"{label}'s Chat Completions", tool, todo)
            case "xai", _:
                raise none_of("xAI's Chat Completions", tool, 'Use its Responses API: "xai-responses:...".')
            case _:
                raise none_of(label, tool)


def for_perplexity(tools: Iterable[ServerTool]) -> Iterator[dict[str, Any]]:
    """Those of Perplexity's Agent API."""
    for tool in tools:
        match tool:
            case WebSearch():
                wanted = _options(tool, "Perplexity", "allowed_domains", "blocked_domains")
                blocked = [f"-{domain}" for domain in wanted.get("blocked_domains", ())]
                domains = [*wanted.get("allowed_domains", ()), *blocked]
                filters = {"filters": {"search_domain_filter": domains}} if domains else {}
                yield {"type": "web_search", **filters}
            case CodeExecution():
                yield {"type": "sandbox"}
            case FileSearch():
                raise none_of("Perplexity", tool)


def as_body(asked: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The part of a request's body that has these tools."""
    tools = [*asked]
    return {"tools": tools} if tools else {}


def _options(tool: WebSearch, label: str, *known: str) -> dict[str, Any]:
    """The options of a search that are set. Raises `ConfigurationError` for one that is not known."""
    found: dict[str, Any] = {name: getattr(tool, name) for name in tool.__struct_fields__ if getattr(tool, name)}
    for name in found:
        if name not in known:
            raise ConfigurationError(f"{label} has no WebSearch({name}=...).", todo="Leave it out.")
    if "allowed_domains" in found and "blocked_domains" in found:
        raise ConfigurationError("WebSearch() has both allowed and blocked domains.", todo="Use one of them.")
    return found
