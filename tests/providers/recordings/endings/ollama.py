"""How an answer of Ollama can end."""

from __future__ import annotations

from ..ollama import OLLAMA, ollama, ollama_end
from ..recording import ANSWER, Recording
from ..source import code
from ..sources import OLLAMA_TYPES
from .ending import Ending

OLLAMA_ENDINGS = [
    Ending(
        OLLAMA,
        "nothing but `done_reason: load`",
        code("ollama/ollama: docs/api.md", "Under `Load a model`."),
        Recording(
            [ollama({"content": ""}, done=True, done_reason="load")],
            "application/x-ndjson",
            output=0,
        ),
        "error",
        requests=4,
    ),
    Ending(
        OLLAMA,
        "`done_reason: length`",
        OLLAMA_TYPES,
        Recording(
            [ollama({"content": ANSWER}), ollama_end(12).replace(b'"stop"', b'"length"')], "application/x-ndjson"
        ),
        "max_tokens",
        text=ANSWER,
    ),
]
