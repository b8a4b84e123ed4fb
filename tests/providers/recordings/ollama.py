"""Ollama on the wire, after its public documentation."""

from __future__ import annotations

import json
from typing import Any

from quiesce.models.providers.ollama import Ollama

from ..wire import refused
from .recording import CALLS, WORDS, Provider, Recording
from .source import assumed, code, thread
from .sources import OLLAMA_TYPES


def ollama(message: Any, **more: Any) -> bytes:
    line = {
        "model": "llama3.2",
        "created_at": "2023-08-04T08:52:19.385406455-07:00",
        "message": {"role": "assistant", **message},
        "done": False,
    }
    return json.dumps(line | more).encode() + b"\n"


def ollama_end(output: int) -> bytes:
    return ollama(
        {"content": ""},
        done=True,
        done_reason="stop",
        total_duration=4883583458,
        load_duration=1334875,
        prompt_eval_count=25,
        prompt_eval_duration=342546000,
        eval_count=output,
        eval_duration=4535599000,
    )


_NDJSON = "application/x-ndjson"
OLLAMA = Provider(
    "ollama",
    lambda url, **more: Ollama("llama3.2", **{"base_url": url, **more}),
    Recording([*(ollama({"content": word}) for word in WORDS), ollama_end(12)], _NDJSON),
    Recording(
        [
            *(
                ollama({"content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
                for name, arguments in CALLS
            ),
            ollama_end(30),
        ],
        _NDJSON,
        output=30,
    ),
    Recording(
        [
            ollama({"content": "", "thinking": "Blue, "}),
            ollama({"content": "", "thinking": "I think."}),
            *(ollama({"content": word}) for word in WORDS),
            ollama_end(20),
        ],
        _NDJSON,
        output=20,
    ),
    {
        "rejected": refused(400, {"error": "invalid options: x"}),
        "key": refused(401, {"error": "unauthorized"}),
        "model": refused(404, {"error": "model 'none' not found"}),
        "rate": refused(429, {"error": "too many requests"}, {"retry-after": "7"}),
        "server": refused(500, {"error": "llama runner process has terminated: exit status 2"}),
        "overloaded": refused(503, {"error": "server busy, please try again.  maximum pending requests exceeded"}),
    },
    "/api/chat",
    json.dumps({"error": "an error was encountered while running the model"}).encode() + b"\n",
    {
        **dict.fromkeys(("answer", "calls", "reasoning"), OLLAMA_TYPES),
        "mid_stream_error": assumed("A line with nothing but `error`, as the bodies of its refusals are."),
        "key": thread("ollama/ollama/issues/16369"),
        "overloaded": code("ollama/ollama: server/sched.go"),
        **dict.fromkeys(
            ("rejected", "model", "rate", "server"), assumed("Of the same shape as `key`; the words vary.")
        ),
    },
)
