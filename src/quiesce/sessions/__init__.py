"""Where conversations live."""

from ..conversation.conversation import Conversation, ConversationState
from .session import Session
from .store import Coordination, SessionStore, Store
from .stores.resolve import resolve_store

__all__ = ["Conversation", "ConversationState", "Coordination", "Session", "SessionStore", "Store", "resolve_store"]
