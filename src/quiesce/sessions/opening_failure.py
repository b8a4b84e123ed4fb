"""The error of a run that has saved nothing."""

from __future__ import annotations

from ..errors import StoreUnavailable


def ended_too_soon() -> StoreUnavailable:
    """The error of a run that ended before its session was open: nothing of it is saved."""
    return StoreUnavailable(
        "The run ended before its session was open; the prompt is not in it.",
        kept="The prompt is in result.unsent.",
        todo="Send it again.",
    )
