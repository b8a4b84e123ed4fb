"""Asking for a stop, and being reached by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._homes import names_from
from .cause import Cause, Mode, Source
from .token import CancellationToken, TokenView

if TYPE_CHECKING:
    from .scope import StopScope
    from .shield import BoundedShield
    from .signals import stop_on_signals

__all__ = ["BoundedShield", "CancellationToken", "Cause", "Mode", "Source", "StopScope", "TokenView", "stop_on_signals"]

# These need an event loop; a token does not, and a tool's worker process has none.
__getattr__, __dir__ = names_from(
    __name__,
    globals(),
    {".scope": ("StopScope",), ".shield": ("BoundedShield",), ".signals": ("stop_on_signals",)},
)
