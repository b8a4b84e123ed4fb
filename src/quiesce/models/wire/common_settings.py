"""Settings that mean the same everywhere, in each provider's words: `effort`, `service_tier` and `cache`.

Each function takes its setting out of `settings`, and raises `RequestRejected` for a value that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..base import CachePolicy
from . import convert

# How many tokens models think at most that take a number and no level. Above: more than these models can have.
_BUDGETS: Final[Mapping[str, int]] = {"low": 2048, "medium": 8192, "high": 24576}
_LEVELS: Final = ("minimal", "low", "medium", "high")
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
# From this one on, prompt caching can be turned off.
_FIRST_WITHOUT_CACHE: Final = (5, 6)


def one_of(settings: dict[str, Any], name: str, label: str, known: Mapping[str, Any] | tuple[str, ...]) -> Any:
    """The setting under the provider's word for it; None when it is not set."""
    value = settings.pop(name, None)
    if value is None:
        return None
    words = dict(zip(known, known, strict=True)) if isinstance(known, tuple) else known
    if value not in words:
        has = ", ".join(map(repr, words))
        raise convert.refused(f"{label} has no {name}={value!r}.", f"Use one of: {has}." if has else "Leave it out.")
    return words[value]


def claude_effort(settings: dict[str, Any], model: str, label: str) -> dict[str, Any]:
    """Up to Claude 4.5, effort is a budget of tokens; later models take the word, and think as long as they need."""
    version = convert.claude_version(model)
    if version is not None and version < (4, 6):
        budget = one_of(settings, "effort", label, {"none": 0, **_BUDGETS})
        if budget is None:
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"}}
    effort = one_of(settings, "effort", label, ("none", "low", "medium", "high", "xhigh", "max"))
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def bedrock_effort(settings: dict[str, Any], model: str) -> dict[str, Any]:
    """For Claude and Nova 2, which have it under `additionalModelRequestFields`."""
    if "claude" in model:
        fields = claude_effort(settings, model, "Bedrock")
    elif "nova-2" in model:
        effort = one_of(settings, "effort", "Bedrock", ("none", "low", "medium", "high"))
        wanted = {"type": "disabled"} if effort == "none" else {"type": "enabled", "maxReasoningEffort": effort}
        fields = {} if effort is None else {"reasoningConfig": wanted}
    else:
        one_of(settings, "effort", "Bedrock", ())
        fields = {}
    return {"additionalModelRequestFields": fields} if fields else {}


def gemini_effort(settings: dict[str, Any], model: str) -> dict[str, Any]:
    """Gemini 2.5 takes a budget of tokens, later models a level."""
    if "gemini-2" in model:
        budget = one_of(settings, "effort", "Gemini", {"none": 0, **_BUDGETS})
        wanted = None if budget is None else {"thinkingBudget": budget}
    else:
        level = one_of(settings, "effort", "Gemini", _LEVELS)
        wanted = None if level is None else {"thinkingLevel": level}
    return {} if wanted is None else {"generationConfig": {"thinkingConfig": wanted}}


def openai_cache(settings: dict[str, Any], model: str, label: str) -> dict[str, Any]:
    """OpenAI caches by itself; from GPT-5.6 on it has a setting that turns it off."""
    found = _GPT.search(model)
    can_stop = found is not None and (int(found[1]), int(found[2] or 0)) >= _FIRST_WITHOUT_CACHE
    if settings.get("cache") is False and can_stop:
        del settings["cache"]
        return {"prompt_cache_options": {"mode": "explicit"}}
    cached_anyway(settings, label)
    return {}


def cached_anyway(settings: dict[str, Any], label: str) -> None:
    """For a provider that caches by itself, or not at all: `cache=True` changes nothing."""
    cache: CachePolicy | None = settings.pop("cache", None)
    if cache not in (None, True):
        raise convert.refused(f"{label} has no cache={cache!r}: what it caches, it caches by itself.", "Leave it out.")
