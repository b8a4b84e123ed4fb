"""Every way in which an answer can end, for each provider: what is on the wire, where that is documented, what follows.

Each recording is named after the one fact that it pins. `docs/providers.md` has a table that is made of these.
"""

from __future__ import annotations

from .anthropic import ANTHROPIC_ENDINGS
from .bedrock import BEDROCK_ENDINGS
from .chat_servers import CHAT_SERVER_ENDINGS
from .ending import Ending
from .gemini import GEMINI_ENDINGS
from .ollama import OLLAMA_ENDINGS
from .openai_chat import CHAT_ENDINGS
from .openai_responses import RESPONSES_ENDINGS

__all__ = ["ANTHROPIC_ENDINGS", "ENDINGS", "Ending", "ending_table"]

ENDINGS = [
    *CHAT_ENDINGS,
    *CHAT_SERVER_ENDINGS,
    *RESPONSES_ENDINGS,
    *ANTHROPIC_ENDINGS,
    *BEDROCK_ENDINGS,
    *GEMINI_ENDINGS,
    *OLLAMA_ENDINGS,
]

# --- The table in docs/providers.md ----------------------------------------------------------------------------------

_NAMES = {
    "openai-chat": "Chat Completions",
    "openai-responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    "gemini": "Gemini",
    "ollama": "Ollama",
}
_ORDINARY = [
    ("all", "a text", "`end_turn`", "", "1"),
    ("all", "tool calls", "the tools are run, and the run goes on", "", "1 for each turn"),
    ("all", "the limit of its length", "`max_tokens`", "", "1"),
    ("all", "no end: the stream was lost before any text", "`ConnectionFailed`, asked again", "", "up to 4"),
    ("all", "no end: the stream was lost after some text", "`StreamBroken`", "the text", "1"),
]


def ending_table() -> str:
    """The ways in which an answer can end, as a table in Markdown."""
    rows = [*_ORDINARY, *map(_row, ENDINGS)]
    head = [
        "| provider | the answer ends with | the run | kept as `ProviderPart` | requests |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _row(ending: Ending) -> tuple[str, str, str, str, str]:
    ends = {
        "error": f"`{ending.error}`" + (", asked again" if ending.requests > 1 else ""),
        "tool_use": "the tools are run, and the run goes on",
        "pause": "all of it goes back, and the run goes on; after 20 in a row `pause`",
    }
    kept = [kind for kind in dict.fromkeys(ending.kept) if kind not in ("reasoning", "cut_note")]
    again = "up to 4" if ending.requests > 1 else "1"
    requests = {"error": again, "tool_use": "1 for each turn", "pause": "1 for each pause"}.get(
        ending.stop_reason, str(ending.requests)
    )
    return (
        _NAMES[ending.provider.name],
        ending.fact,
        ends.get(ending.stop_reason, f"`{ending.stop_reason}`"),
        ", ".join(f"`{kind}`" for kind in kept),
        requests,
    )
