"""Marks that let a provider keep the beginning of a request for the next one."""

from __future__ import annotations

from typing import Any, Final

from ..errors import ConfigurationError
from ..models.base import CachePolicy
from .base import Deltas, Middleware, ModelCall, Send


class CachePrompt(Middleware[Any]):
    """Marks the tools, the instructions and the conversation so far for the provider's prompt cache.

    ttl   how long they are kept, where that can be chosen: "5m" or "1h"; True for the provider's own time, and False to
          send no marks

    Anthropic and Bedrock have such marks; other providers cache by themselves, or not at all, and ignore this. Raises
    `ConfigurationError` for any other time.
    """

    def __init__(self, ttl: CachePolicy = True) -> None:  # noqa: FBT002 - CachePrompt("1h") reads well
        if ttl not in (True, False, "5m", "1h"):
            raise ConfigurationError(f"ttl={ttl!r} makes no sense.", todo='Use "5m", "1h", True or False.')
        self._ttl: Final = ttl

    def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> Deltas:
        """Send the request with marks."""
        return next(call.replace(cache=self._ttl))
