"""Asking for a stop, and being reached by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .cause import Cause, Mode, Source
    from .scope import StopScope
    from .shield import BoundedShield
    from .signals import stop_on_signals
    from .token import CancellationToken
    from .view import TokenView

__all__ = ["BoundedShield", "CancellationToken", "Cause", "Mode", "Source", "StopScope", "TokenView", "stop_on_signals"]

# Some of these need an event loop, and a tool's worker process does without most of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    globals(),
    {
        ".cause": ("Cause", "Mode", "Source"),
        ".scope": ("StopScope",),
        ".shield": ("BoundedShield",),
        ".signals": ("stop_on_signals",),
        ".token": ("CancellationToken",),
        ".view": ("TokenView",),
    },
)
