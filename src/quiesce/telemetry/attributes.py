"""The attributes of spans and metrics: `gen_ai` by the GenAI semantic conventions, `quiesce` for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from ..cancellation import Cause
from ..receipt import Receipt
from ..usage.ledger import TokenUsage
from ..usage.prices import Cost

# The names of providers in the conventions, where those of Quiesce differ.
_PROVIDERS: Final = {
    "openai-chat": "openai",
    "azure-responses": "azure.ai.openai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_NUMBERS: Final = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty")
_FIELDS: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}


def model_attributes(name: str) -> dict[str, Any]:
    """A model and its provider. Names of models may have colons of their own, those of providers have none."""
    provider, colon, model = name.partition(":")
    if not colon:
        return {"gen_ai.request.model": name}
    return {"gen_ai.request.model": model, "gen_ai.provider.name": _PROVIDERS.get(provider, provider)}


def parameter_attributes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request that the conventions have a name for."""
    found = {name: settings[name] for name in _NUMBERS if isinstance(settings.get(name), int | float)}
    stops = settings.get("stop_sequences", settings.get("stop"))
    if stops:
        found["stop_sequences"] = (stops,) if isinstance(stops, str) else tuple(map(str, stops))
    return {f"gen_ai.request.{name}": value for name, value in found.items()}


def cause_attributes(cause: Cause) -> dict[str, Any]:
    """What asked for a stop."""
    return {
        "quiesce.stop.source": cause.source,
        "quiesce.stop.reason": cause.reason,
        "quiesce.stop.mode": str(cause.mode),
    }


def receipt_attributes(receipt: Receipt) -> dict[str, Any]:
    """How a run ended."""
    attributes: dict[str, Any] = {
        "quiesce.stop_reason": receipt.stop_reason,
        "quiesce.receipt.tool_calls": tuple(f"{call.name}: {call.outcome.value}" for call in receipt.calls),
        "quiesce.receipt.still_running": receipt.still_running,
        **usage_attributes(receipt.usage.tokens, receipt.usage.cost),
    }
    if receipt.cause is not None:
        attributes |= cause_attributes(receipt.cause)
        attributes |= {
            "quiesce.stop.mode": str(receipt.mode or receipt.cause.mode),
            "quiesce.stop.phase": receipt.phase.value,
            "quiesce.stop.latency": receipt.latency or 0.0,
            "quiesce.receipt.kept_text": receipt.kept_text,
        }
    return attributes


def usage_attributes(tokens: TokenUsage, cost: Cost | None) -> dict[str, Any]:
    """Usage as attributes. The conventions have one number for each; an estimate has its bounds beside it."""
    attributes: dict[str, Any] = {}
    for field, name in _FIELDS.items():
        figure = getattr(tokens, field)
        if figure.value is not None:
            attributes[name] = figure.value
        if not figure.exact:
            attributes[f"quiesce.usage.{field}.source"] = figure.source.value
            attributes[f"quiesce.usage.{field}.low"] = figure.low
            if figure.high is not None:
                attributes[f"quiesce.usage.{field}.high"] = figure.high
    for bound in ("value", "low", "high"):
        amount: Decimal | None = None if cost is None else getattr(cost, bound)
        if amount is not None:
            attributes[f"quiesce.cost.{bound}"] = float(amount)
    return attributes


def as_json_text(value: Any) -> str:
    """A value as JSON, or as Python shows it."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
