"""What each provider puts on the wire, after its public documentation, and the model that reads it."""

from __future__ import annotations

from .anthropic import ANTHROPIC
from .bedrock import BEDROCK
from .gemini import GEMINI
from .ollama import OLLAMA
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .recording import ANSWER, KEY, THOUGHT, Provider, Recording

__all__ = [
    "ANSWER",
    "ANTHROPIC",
    "BEDROCK",
    "GEMINI",
    "KEY",
    "OLLAMA",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "PROVIDERS",
    "THOUGHT",
    "Provider",
    "Recording",
]

PROVIDERS = [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, GEMINI, OLLAMA]
