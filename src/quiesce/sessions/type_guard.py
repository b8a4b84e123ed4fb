"""Whether a conversation is a session, for code that must not import the sessions as long as there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from ..conversation.conversation import Conversation
    from .session import Session


def is_session(conversation: Conversation) -> TypeIs[Session]:
    """Whether a conversation is in a store."""
    return conversation.must_be_opened
