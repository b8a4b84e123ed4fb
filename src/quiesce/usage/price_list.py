"""Published prices, from `genai-prices` (the extra `prices`): a table that comes with the package."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from .._threads.loading import call_all, start_loading
from .prices import Price, Tier

# What Quiesce calls a provider, where the list calls it something else.
_PROVIDERS: Final = {
    "bedrock": "aws",
    "gemini": "google",
    "xai": "x-ai",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "azure-responses": "azure",
    "vertex": "google",
    "xai-responses": "x-ai",
}
_SOLD: Final = r"[\d-]"
# Servers that send no bill, although others sell the same models.
_FREE: Final = frozenset({"ollama", "ollama-chat", "llamacpp", "llama.cpp", "vllm", "local", "lmstudio", "sglang"})


@lru_cache(maxsize=256)
def published_price(model: str) -> Price | None:
    """The list price of a model named "provider:model" or just "model"; None when the list does not have it."""
    provider, name = _split(model)
    if not _may_be_listed(provider, name):
        return None
    try:
        prices: Any = importlib.import_module(_LIST)
    except ImportError:
        return None
    finally:
        _loaded.add(_LIST)
    usage = prices.Usage(input_tokens=0, output_tokens=0)
    try:
        found = prices.calc_price(usage, name, provider_id=_PROVIDERS.get(provider, provider) or None)
    except (LookupError, ValueError):
        return None
    return _price(found.model_price)


def loaded_price(model: str) -> Price | None:
    """The list price of a model, if the list is loaded. Never waits."""
    return published_price(model) if prices_are_loaded(model) else None


def prices_are_loaded(model: str) -> bool:
    """Whether the list price of a model is known without waiting: the list is loaded, or cannot have the model."""
    return bool(_loaded) or not _may_be_listed(*_split(model))


def load_prices(model: str, then: Callable[[], None] | None = None) -> None:
    """Begin to load the list that a model may be in, in a thread: importing it takes a tenth of a second.

    `then` is called once, when the list is loaded or cannot be: in that thread, or at once.
    """
    calls = [] if then is None else [then]
    if prices_are_loaded(model):
        call_all(calls)
        return
    waiting = _loading.setdefault(_LIST, calls)
    if waiting is calls:
        start_loading(lambda: _load(model), calls, lambda: _loading.pop(_LIST, None), name="quiesce-prices")
        return
    waiting.extend(calls)
    if _loading.get(_LIST) is not waiting:  # it has ended meanwhile, perhaps before these were added
        call_all(waiting)


def _load(model: str) -> None:
    try:
        published_price(model)  # asked for a price, because the package imports its table only then
    finally:
        _loaded.add(_LIST)


_LIST: Final = "genai_prices"
_loading: Final[dict[str, list[Callable[[], None]]]] = {}
"""What is to be called when the list is loaded."""
_loaded: Final[set[str]] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loading.clear)  # the thread is the parent's


def _split(model: str) -> tuple[str, str]:
    provider, colon, name = model.partition(":")
    return (provider, name) if colon else ("", model)


def _may_be_listed(provider: str, name: str) -> bool:
    """Whether a model can be in the list: not without a provider, a digit or a dash. Others are spared the import."""
    return provider not in _FREE and name != "" and (provider != "" or re.search(_SOLD, name) is not None)


def _price(listed: Any) -> Price | None:
    rates = {
        field: getattr(listed, f"{field}_mtok", None) for field in ("input", "output", "cache_read", "cache_write")
    }
    if rates["input"] is None or rates["output"] is None:
        return None
    starts = sorted({tier.start for rate in rates.values() for tier in getattr(rate, "tiers", ())})
    tiers = tuple(Tier(start, **{field: _rate(rate, start + 1) for field, rate in rates.items()}) for start in starts)
    return Price(**{field: _rate(rate, 0) for field, rate in rates.items()}, tiers=tiers)


def _rate(rate: Any, tokens: int) -> Any:
    """The rate for a request with so many input tokens."""
    if rate is None or isinstance(rate, Decimal):
        return rate
    return next((tier.price for tier in reversed(rate.tiers) if tokens > tier.start), rate.base)
