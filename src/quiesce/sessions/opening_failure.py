"""Why a run has saved nothing."""

from __future__ import annotations

from ..errors import StoreUnavailable


def ended_too_soon() -> StoreUnavailable:
    """Why nothing of a run is saved that ended before its session was open."""
    return StoreUnavailable(
        "The run ended before its session was open; the prompt is not in it.",
        kept="The prompt is in result.unsent.",
        todo="Send it again.",
    )
