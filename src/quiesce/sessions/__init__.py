"""Where conversations live."""

from .base import Store
from .memory import Conversation, ConversationState
from .session import Session
from .where import resolve_store

__all__ = ["Conversation", "ConversationState", "Session", "Store", "resolve_store"]
