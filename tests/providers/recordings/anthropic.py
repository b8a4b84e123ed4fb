"""Anthropic Messages on the wire, after its public documentation."""

from __future__ import annotations

import json
from typing import Any

from quiesce.models.providers.anthropic import Anthropic

from ..wire import refused, sse
from .recording import CALLS, KEY, WORDS, Provider, Recording
from .source import quoted
from .sources import CLAUDE_CALL, CLAUDE_ERRORS, CLAUDE_OVERLOADED, CLAUDE_TEXT, CLAUDE_THINKING, TOO_LONG


def claude(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def claude_start() -> bytes:
    message = {
        "id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-sonnet-5",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 5,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }
    return claude("message_start", message=message)


def claude_text(index: int) -> list[bytes]:
    return [
        claude("content_block_start", index=index, content_block={"type": "text", "text": ""}),
        claude("ping"),
        *(claude("content_block_delta", index=index, delta={"type": "text_delta", "text": word}) for word in WORDS),
        claude("content_block_stop", index=index),
    ]


def claude_end(reason: str, output: int, thought: int = 0) -> list[bytes]:
    usage: dict[str, Any] = {"output_tokens": output} | (
        {"output_tokens_details": {"thinking_tokens": thought}} if thought else {}
    )
    return [
        claude("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage),
        claude("message_stop"),
    ]


def _claude_calls() -> list[bytes]:
    events = [claude_start()]
    for index, (name, arguments) in enumerate(CALLS):
        written = json.dumps(arguments)
        block = {"type": "tool_use", "id": f"toolu_0{index}", "name": name, "input": {}}
        events.append(claude("content_block_start", index=index, content_block=block))
        for piece in ("", written[:6], written[6:]):
            events.append(
                claude("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
            )
        events.append(claude("content_block_stop", index=index))
    return [*events, *claude_end("tool_use", 30)]


_CLAUDE_REASONING = [
    claude_start(),
    claude("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
    claude("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Blue, "}),
    claude("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "I think."}),
    claude(
        "content_block_delta", index=0, delta={"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
    ),
    claude("content_block_stop", index=0),
    claude("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}),
    claude("content_block_stop", index=1),
    *claude_text(2),
    *claude_end("end_turn", 20, 8),
]


def _claude_error(status: int, kind: str, message: str, **headers: str) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}
    return refused(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


ANTHROPIC = Provider(
    "anthropic",
    lambda url, **more: Anthropic("claude-sonnet-5", **{"base_url": url, "api_key": KEY, **more}),
    Recording(
        [claude_start(), *claude_text(0), *claude_end("end_turn", 12)],
        headers={"request-id": "req_claude"},
        cache_read=5,
        complete_at=-2,
    ),
    Recording(_claude_calls(), output=30, complete_at=-2),
    Recording(_CLAUDE_REASONING, output=20, reasoning=8, complete_at=-2),
    {
        "rejected": _claude_error(400, "invalid_request_error", "max_tokens: must be greater than 0"),
        "too_long": _claude_error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        "key": _claude_error(401, "authentication_error", "invalid x-api-key"),
        "model": _claude_error(404, "not_found_error", "model: claude-none"),
        "rate": _claude_error(429, "rate_limit_error", "This request would exceed your rate limit.", retry_after="7"),
        "quota": _claude_error(
            400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
        ),
        "server": _claude_error(500, "api_error", "Internal server error"),
        "overloaded": _claude_error(529, "overloaded_error", "Overloaded"),
    },
    "/v1/messages",
    sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error"),
    {
        "answer": CLAUDE_TEXT,
        "calls": CLAUDE_CALL,
        "reasoning": CLAUDE_THINKING,
        "mid_stream_error": CLAUDE_ERRORS,
        "too_long": TOO_LONG,
        "quota": quoted("The message stands in programs that recognise it. Documented is `billing_error`, for 402."),
        "overloaded": CLAUDE_OVERLOADED,
        **dict.fromkeys(("rejected", "key", "model", "rate", "server"), CLAUDE_ERRORS),
    },
)
