from ..conversation.conversation import Conversation as Conversation
from ..conversation.conversation import ConversationState as ConversationState
from .session import Session as Session
from .store import Coordination as Coordination
from .store import SessionStore as SessionStore
from .store import Store as Store
from .stores.resolve import resolve_store as resolve_store
