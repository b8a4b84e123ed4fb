"""Where conversations live."""

from ..conversation.conversation import Conversation, ConversationState
from .session import Session
from .store import Store
from .stores.resolve import resolve_store

__all__ = ["Conversation", "ConversationState", "Session", "Store", "resolve_store"]
