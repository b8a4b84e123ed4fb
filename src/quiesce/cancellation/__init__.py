"""Asking for a stop, and being reached by it."""

from .cause import Cause, Mode, Source
from .scope import StopScope
from .shield import BoundedShield
from .signals import stop_on_signals
from .token import CancellationToken, TokenView

__all__ = ["BoundedShield", "CancellationToken", "Cause", "Mode", "Source", "StopScope", "TokenView", "stop_on_signals"]
