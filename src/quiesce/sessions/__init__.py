"""Where conversations live."""

from .base import Store
from .memory import Conversation
from .session import Session
from .where import resolve_store

__all__ = ["Conversation", "Session", "Store", "resolve_store"]
