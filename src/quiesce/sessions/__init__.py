"""Where conversations live."""

from .memory import Conversation, ConversationState

__all__ = ["Conversation", "ConversationState"]
