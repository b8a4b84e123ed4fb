"""What OpenRouter says of a request afterwards, also of one that was cut: its `generation` record."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ...events import UsageDelta


class _Record(Struct):
    """The figures are in the tokens of the model itself, which is what is billed."""

    native_tokens_prompt: int | None = None
    native_tokens_completion: int | None = None
    native_tokens_reasoning: int | None = None
    native_tokens_cached: int | None = None


class _Reply(Struct):
    data: _Record


def usage_of_generation(reply: Any) -> UsageDelta | None:
    """The usage that a reply of `GET /generation` holds; None when it has none yet."""
    try:
        record = msgspec.convert(reply, _Reply).data
    except msgspec.ValidationError:
        return None
    if record.native_tokens_prompt is None or record.native_tokens_completion is None:
        return None
    return UsageDelta(
        input=record.native_tokens_prompt,
        output=record.native_tokens_completion,
        cache_read=record.native_tokens_cached,
        reasoning=record.native_tokens_reasoning,
        final=True,
    )
