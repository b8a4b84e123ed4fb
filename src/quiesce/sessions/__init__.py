"""Where conversations live."""

from .memory import Conversation

__all__ = ["Conversation"]
