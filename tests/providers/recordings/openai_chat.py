"""OpenAI Chat Completions on the wire, after its public documentation."""

from __future__ import annotations

from typing import Any

from quiesce.models.providers.openai_chat import OpenAIChat

from ..wire import refused, sse
from .recording import KEY, WORDS, Provider, Recording
from .source import package
from .sources import CHAT_CHUNK, OPENAI_ERROR_SOURCES


def chat(delta: Any, finish: str | None = None, **more: Any) -> bytes:
    chunk = {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "gpt-4o-mini",
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }
    return sse(chunk | more)


def chat_usage(output: int, reasoning: int = 0, cached: int = 0) -> bytes:
    usage = {
        "prompt_tokens": 25,
        "completion_tokens": output,
        "total_tokens": 25 + output,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }
    return chat({}, choices=[], usage=usage)


DONE = sse("[DONE]")


def chat_call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments} | ({"name": name} if name else {})
    piece: dict[str, Any] = {"index": index, "function": function}
    return {"tool_calls": [piece | ({"id": call_id, "type": "function"} if call_id else {})]}


OPENAI_CHAT = Provider(
    "openai-chat",
    lambda url, **more: OpenAIChat("gpt-4o-mini", **{"base_url": f"{url}/v1", "api_key": KEY, **more}),
    Recording(
        [
            chat({"role": "assistant", "content": "", "refusal": None}),
            *(chat({"content": word}) for word in WORDS),
            chat({}, "stop"),
            chat_usage(12, cached=5),
            DONE,
        ],
        headers={"x-request-id": "req_chat"},
        cache_read=5,
        complete_at=4,
    ),
    Recording(
        [
            chat({"role": "assistant", "content": None}),
            chat(chat_call(0, "", "call_a", "weather")),
            chat(chat_call(0, '{"ci')),
            chat(chat_call(1, "", "call_b", "weather")),
            chat(chat_call(0, 'ty":"Paris"}')),
            chat(chat_call(1, '{"city":')),
            chat(chat_call(1, '"Rome"}')),
            chat({}, "tool_calls"),
            chat_usage(30),
            DONE,
        ],
        output=30,
        complete_at=7,
    ),
    Recording(
        [
            chat({"role": "assistant", "content": None, "reasoning_content": "Blue, "}),
            chat({"content": None, "reasoning_content": "I think."}),
            *(chat({"content": word}) for word in WORDS),
            chat({}, "stop"),
            chat_usage(20, reasoning=8),
            DONE,
        ],
        output=20,
        reasoning=8,
        complete_at=5,
    ),
    {
        "rejected": refused(
            400,
            {"error": {"message": "Invalid value: 'x'.", "type": "invalid_request_error", "param": "x", "code": None}},
        ),
        "too_long": refused(
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 128000 tokens.",
                    "type": "invalid_request_error",
                    "param": "messages",
                    "code": "context_length_exceeded",
                }
            },
        ),
        "key": refused(
            401,
            {
                "error": {
                    "message": f"Incorrect API key provided: {KEY}. You can find your API key at https://platform.openai.com/account/api-keys.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "invalid_api_key",
                }
            },
        ),
        "model": refused(
            404,
            {
                "error": {
                    "message": "The model `gpt-none` does not exist or you do not have access to it.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "model_not_found",
                }
            },
        ),
        "rate": refused(
            429,
            {
                "error": {
                    "message": "Rate limit reached for gpt-4o-mini.",
                    "type": "requests",
                    "param": None,
                    "code": "rate_limit_exceeded",
                }
            },
            {"retry-after": "7"},
        ),
        "quota": refused(
            429,
            {
                "error": {
                    "message": "You exceeded your current quota, please check your plan and billing details.",
                    "type": "insufficient_quota",
                    "param": None,
                    "code": "insufficient_quota",
                }
            },
        ),
        "server": refused(
            500,
            {
                "error": {
                    "message": "The server had an error while processing your request.",
                    "type": "server_error",
                    "param": None,
                    "code": None,
                }
            },
        ),
        "overloaded": refused(
            503,
            {
                "error": {
                    "message": "The engine is currently overloaded, please try again later.",
                    "type": "server_error",
                    "code": "overloaded",
                }
            },
        ),
    },
    "/v1/chat/completions",
    sse({"error": {"message": "The server had an error.", "type": "server_error", "code": None}}),
    {
        "answer": CHAT_CHUNK,
        "calls": CHAT_CHUNK,
        "reasoning": package(
            "fireworks-ai 1.2.30: fireworks/types/chat/chat_completion_chunk.py",
            "reasoning_content: Optional[str]",
            note="OpenAI does not stream reasoning here; servers that do call it so.",
        ),
        "mid_stream_error": package(
            "openai 3.49.0: openai/_streaming.py", 'data.get("error")', note="That the client looks for it there."
        ),
        **OPENAI_ERROR_SOURCES,
    },
)
