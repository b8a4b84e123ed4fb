"""What each provider puts on the wire, after its public documentation, and the model that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quiesce.models.anthropic import Anthropic
from quiesce.models.base import Model
from quiesce.models.bedrock import Bedrock
from quiesce.models.gemini import Gemini
from quiesce.models.ollama import Ollama
from quiesce.models.openai_chat import OpenAIChat
from quiesce.models.openai_responses import OpenAIResponses

from .wire import aws_event, refused, sse, streamed

KEY = "sk-test-0123456789abcdefSECRET"
WORDS = ["The sky", " is blue", " today, said \u201cnobody\u201d \U0001f324."]
ANSWER = "".join(WORDS)
THOUGHT = "Blue, I think."
CALLS = [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]


@dataclass
class Recording:
    """One answer: its events, and what must come of them."""

    events: list[bytes]
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    input: int = 25
    output: int = 12
    reasoning: int = 0
    cache_read: int = 0
    # The first event with which the answer is complete.
    complete_at: int = -1

    @property
    def response(self) -> bytes:
        return streamed(self.events, self.content_type, self.headers)


@dataclass
class Provider:
    """A provider: how to make its model, and its recordings."""

    name: str
    make: Callable[..., Model]
    answer: Recording
    calls: Recording
    reasoning: Recording
    errors: dict[str, bytes]
    path: str
    mid_stream_error: bytes | None = None

    def __str__(self) -> str:
        return self.name


# --- OpenAI Chat Completions ------------------------------------------------------------------------------------------


def _chat(delta: Any, finish: str | None = None, **more: Any) -> bytes:
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


def _chat_usage(output: int, reasoning: int = 0, cached: int = 0) -> bytes:
    usage = {
        "prompt_tokens": 25,
        "completion_tokens": output,
        "total_tokens": 25 + output,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }
    return _chat({}, choices=[], usage=usage)


_DONE = sse("[DONE]")


def _chat_call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments} | ({"name": name} if name else {})
    piece: dict[str, Any] = {"index": index, "function": function}
    return {"tool_calls": [piece | ({"id": call_id, "type": "function"} if call_id else {})]}


OPENAI_CHAT = Provider(
    "openai-chat",
    lambda url, **more: OpenAIChat("gpt-4o-mini", **{"base_url": f"{url}/v1", "api_key": KEY, **more}),
    Recording(
        [
            _chat({"role": "assistant", "content": "", "refusal": None}),
            *(_chat({"content": word}) for word in WORDS),
            _chat({}, "stop"),
            _chat_usage(12, cached=5),
            _DONE,
        ],
        headers={"x-request-id": "req_chat"},
        cache_read=5,
        complete_at=4,
    ),
    Recording(
        [
            _chat({"role": "assistant", "content": None}),
            _chat(_chat_call(0, "", "call_a", "weather")),
            _chat(_chat_call(0, '{"ci')),
            _chat(_chat_call(1, "", "call_b", "weather")),
            _chat(_chat_call(0, 'ty":"Paris"}')),
            _chat(_chat_call(1, '{"city":')),
            _chat(_chat_call(1, '"Rome"}')),
            _chat({}, "tool_calls"),
            _chat_usage(30),
            _DONE,
        ],
        output=30,
        complete_at=7,
    ),
    Recording(
        [
            _chat({"role": "assistant", "content": None, "reasoning_content": "Blue, "}),
            _chat({"content": None, "reasoning_content": "I think."}),
            *(_chat({"content": word}) for word in WORDS),
            _chat({}, "stop"),
            _chat_usage(20, reasoning=8),
            _DONE,
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
)

# --- OpenAI Responses -------------------------------------------------------------------------------------------------


class _Responses:
    """Numbers the events, as the API does."""

    def __init__(self) -> None:
        self.number = -1

    def __call__(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        return sse({"type": kind, "sequence_number": self.number, **fields}, kind)


def _response(status: str, usage: Any = None) -> dict[str, Any]:
    return {
        "id": "resp_67c9",
        "object": "response",
        "created_at": 1741290958,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini",
        "output": [],
        "usage": usage,
    }


def _responses_usage(output: int, reasoning: int = 0, cached: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": 25,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": 25 + output,
    }


def _responses_text(event: _Responses, index: int) -> list[bytes]:
    item = {"id": "msg_67c9", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    place = {"item_id": "msg_67c9", "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        event("response.output_item.added", output_index=index, item=item),
        event("response.content_part.added", **place, part=part),
        *(event("response.output_text.delta", **place, delta=word, logprobs=[]) for word in WORDS),
        event("response.output_text.done", **place, text=ANSWER, logprobs=[]),
        event("response.content_part.done", **place, part=part | {"text": ANSWER}),
        event(
            "response.output_item.done",
            output_index=index,
            item=item | {"status": "completed", "content": [part | {"text": ANSWER}]},
        ),
    ]


def _responses_answer() -> list[bytes]:
    event = _Responses()
    return [
        event("response.created", response=_response("in_progress")),
        event("response.in_progress", response=_response("in_progress")),
        *_responses_text(event, 0),
        event("response.completed", response=_response("completed", _responses_usage(12, cached=5))),
    ]


def _responses_calls() -> list[bytes]:
    event = _Responses()
    events = [event("response.created", response=_response("in_progress"))]
    for index, (name, arguments) in enumerate(CALLS):
        item = {
            "id": f"fc_{index}",
            "type": "function_call",
            "status": "in_progress",
            "call_id": f"call_{'ab'[index]}",
            "name": name,
            "arguments": "",
        }
        written = json.dumps(arguments)
        place = {"item_id": f"fc_{index}", "output_index": index}
        events += [
            event("response.output_item.added", output_index=index, item=item),
            event("response.function_call_arguments.delta", **place, delta=written[:6]),
            event("response.function_call_arguments.delta", **place, delta=written[6:]),
            event("response.function_call_arguments.done", **place, arguments=written),
            event(
                "response.output_item.done",
                output_index=index,
                item=item | {"status": "completed", "arguments": written},
            ),
        ]
    return [*events, event("response.completed", response=_response("completed", _responses_usage(30)))]


def _responses_reasoning() -> list[bytes]:
    event = _Responses()
    item = {"id": "rs_67c9", "type": "reasoning", "summary": []}
    place = {"item_id": "rs_67c9", "output_index": 0, "summary_index": 0}
    return [
        event("response.created", response=_response("in_progress")),
        event("response.output_item.added", output_index=0, item=item),
        event("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""}),
        event("response.reasoning_summary_text.delta", **place, delta="Blue, "),
        event("response.reasoning_summary_text.delta", **place, delta="I think."),
        event("response.reasoning_summary_text.done", **place, text=THOUGHT),
        event(
            "response.output_item.done",
            output_index=0,
            item=item | {"summary": [{"type": "summary_text", "text": THOUGHT}], "encrypted_content": "gAAAAencrypted"},
        ),
        *_responses_text(event, 1),
        event("response.completed", response=_response("completed", _responses_usage(20, reasoning=8))),
    ]


OPENAI_RESPONSES = Provider(
    "openai-responses",
    lambda url, **more: OpenAIResponses("gpt-5-mini", **{"base_url": f"{url}/v1", "api_key": KEY, **more}),
    Recording(_responses_answer(), headers={"x-request-id": "req_resp"}, cache_read=5),
    Recording(_responses_calls(), output=30),
    Recording(_responses_reasoning(), output=20, reasoning=8),
    OPENAI_CHAT.errors,
    "/v1/responses",
    sse(
        {
            "type": "error",
            "sequence_number": 9,
            "code": "server_error",
            "message": "The server had an error.",
            "param": None,
        },
        "error",
    ),
)

# --- Anthropic Messages -----------------------------------------------------------------------------------------------


def _claude(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _claude_start() -> bytes:
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
    return _claude("message_start", message=message)


def _claude_text(index: int) -> list[bytes]:
    return [
        _claude("content_block_start", index=index, content_block={"type": "text", "text": ""}),
        _claude("ping"),
        *(_claude("content_block_delta", index=index, delta={"type": "text_delta", "text": word}) for word in WORDS),
        _claude("content_block_stop", index=index),
    ]


def _claude_end(reason: str, output: int, thought: int = 0) -> list[bytes]:
    usage: dict[str, Any] = {"output_tokens": output} | (
        {"output_tokens_details": {"thinking_tokens": thought}} if thought else {}
    )
    return [
        _claude("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage),
        _claude("message_stop"),
    ]


def _claude_calls() -> list[bytes]:
    events = [_claude_start()]
    for index, (name, arguments) in enumerate(CALLS):
        written = json.dumps(arguments)
        block = {"type": "tool_use", "id": f"toolu_0{index}", "name": name, "input": {}}
        events.append(_claude("content_block_start", index=index, content_block=block))
        for piece in ("", written[:6], written[6:]):
            events.append(
                _claude("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
            )
        events.append(_claude("content_block_stop", index=index))
    return [*events, *_claude_end("tool_use", 30)]


_CLAUDE_REASONING = [
    _claude_start(),
    _claude("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
    _claude("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Blue, "}),
    _claude("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "I think."}),
    _claude(
        "content_block_delta", index=0, delta={"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
    ),
    _claude("content_block_stop", index=0),
    _claude("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}),
    _claude("content_block_stop", index=1),
    *_claude_text(2),
    *_claude_end("end_turn", 20, 8),
]


def _claude_error(status: int, kind: str, message: str, **headers: str) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}
    return refused(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


ANTHROPIC = Provider(
    "anthropic",
    lambda url, **more: Anthropic("claude-sonnet-5", **{"base_url": url, "api_key": KEY, **more}),
    Recording(
        [_claude_start(), *_claude_text(0), *_claude_end("end_turn", 12)],
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
)

# --- Amazon Bedrock ConverseStream ------------------------------------------------------------------------------------


def _bedrock_text(index: int) -> list[bytes]:
    return [
        *(
            aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": word}, "p": "abcdefghij"})
            for word in WORDS
        ),
        aws_event("contentBlockStop", {"contentBlockIndex": index, "p": "abc"}),
    ]


def _bedrock_end(reason: str, output: int) -> list[bytes]:
    usage = {
        "inputTokens": 20,
        "outputTokens": output,
        "totalTokens": 25 + output,
        "cacheReadInputTokens": 5,
        "cacheWriteInputTokens": 0,
    }
    return [
        aws_event("messageStop", {"stopReason": reason, "p": "ab"}),
        aws_event("metadata", {"metrics": {"latencyMs": 551}, "usage": usage, "p": "abcdef"}),
    ]


_BEDROCK_START = aws_event("messageStart", {"role": "assistant", "p": "abcdefghijklmn"})


def _bedrock_calls() -> list[bytes]:
    events = [_BEDROCK_START]
    for index, (name, arguments) in enumerate(CALLS):
        written = json.dumps(arguments)
        use = {"toolUse": {"toolUseId": f"tooluse_kZJMlvQmRJ6eAyJE5GIl7{index}", "name": name}}
        events.append(aws_event("contentBlockStart", {"contentBlockIndex": index, "start": use}))
        for piece in (written[:6], written[6:]):
            events.append(
                aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}})
            )
        events.append(aws_event("contentBlockStop", {"contentBlockIndex": index}))
    return [*events, *_bedrock_end("tool_use", 30)]


def _bedrock_thought(delta: dict[str, str]) -> bytes:
    return aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": delta}})


def _bedrock_error(status: int, kind: str, message: str, **headers: str) -> bytes:
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return refused(
        status,
        {"message": message},
        {"x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/", "x-amzn-requestid": "4b4c", **extra},
    )


_AWS = "application/vnd.amazon.eventstream"
BEDROCK = Provider(
    "bedrock",
    lambda url, **more: Bedrock(
        "anthropic.claude-3-5-sonnet-20241022-v2:0", **{"base_url": url, "api_key": KEY, "region": "us-east-1", **more}
    ),
    Recording(
        [_BEDROCK_START, *_bedrock_text(0), *_bedrock_end("end_turn", 12)],
        _AWS,
        {"x-amzn-requestid": "req_bedrock"},
        cache_read=5,
        complete_at=-2,
    ),
    Recording(_bedrock_calls(), _AWS, output=30, complete_at=-2),
    Recording(
        [
            _BEDROCK_START,
            _bedrock_thought({"text": "Blue, "}),
            _bedrock_thought({"text": "I think."}),
            _bedrock_thought({"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}),
            aws_event("contentBlockStop", {"contentBlockIndex": 0}),
            *_bedrock_text(1),
            *_bedrock_end("end_turn", 20),
        ],
        _AWS,
        output=20,
        complete_at=-2,
    ),
    {
        "rejected": _bedrock_error(
            400, "ValidationException", "1 validation error detected: Value '-1' at 'inferenceConfig.maxTokens'"
        ),
        "too_long": _bedrock_error(400, "ValidationException", "Input is too long for requested model."),
        "key": _bedrock_error(
            403, "AccessDeniedException", "Authentication failed: Please make sure your API Key is valid."
        ),
        "model": _bedrock_error(400, "ValidationException", "The provided model identifier is invalid."),
        "rate": _bedrock_error(
            429, "ThrottlingException", "Too many requests, please wait before trying again.", retry_after="7"
        ),
        "quota": _bedrock_error(
            400, "ServiceQuotaExceededException", "Your request exceeds the service quota for your account."
        ),
        "server": _bedrock_error(500, "InternalServerException", "An internal server error occurred."),
        "overloaded": _bedrock_error(503, "ServiceUnavailableException", "The service is not currently available."),
    },
    "/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse-stream",
    aws_event(
        "throttlingException", {"message": "Too many requests, please wait before trying again."}, exception=True
    ),
)

# --- Google Gemini ----------------------------------------------------------------------------------------------------


def _gemini(
    parts: list[Any], output: int | None = None, finish: str | None = None, thoughts: int = 0, cached: int = 0
) -> bytes:
    usage: dict[str, Any] = {
        "promptTokenCount": 25,
        "totalTokenCount": 25 + (output or 0),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 25}],
    }
    usage |= {} if output is None else {"candidatesTokenCount": output - thoughts}
    usage |= {"thoughtsTokenCount": thoughts} if thoughts else {}
    usage |= {"cachedContentTokenCount": cached} if cached else {}
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    candidate |= {"finishReason": finish} if finish else {}
    return sse(
        {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
        }
    ).replace(b"\n\n", b"\r\n\r\n")


def _gemini_error(status: int, kind: str, message: str, details: list[Any] | None = None) -> bytes:
    return refused(status, {"error": {"code": status, "message": message, "status": kind, "details": details or []}})


GEMINI = Provider(
    "gemini",
    lambda url, **more: Gemini("gemini-2.5-flash", **{"base_url": f"{url}/v1beta", "api_key": KEY, **more}),
    Recording(
        [
            _gemini([{"text": WORDS[0]}], 3, cached=5),
            _gemini([{"text": WORDS[1]}], 6, cached=5),
            _gemini([{"text": WORDS[2]}], 12, "STOP", cached=5),
        ],
        cache_read=5,
    ),
    Recording(
        [
            _gemini(
                [
                    {
                        "functionCall": {"name": name, "args": arguments},
                        **({"thoughtSignature": "CikB0e2Kb1"} if not index else {}),
                    }
                    for index, (name, arguments) in enumerate(CALLS)
                ],
                30,
            ),
            _gemini([{"text": ""}], 30, "STOP"),
        ],
        output=30,
    ),
    Recording(
        [
            _gemini([{"text": "Blue, ", "thought": True}], None),
            _gemini([{"text": "I think.", "thought": True}], 8, thoughts=8),
            *(_gemini([{"text": word}], 12, thoughts=8) for word in WORDS),
            _gemini([{"text": "", "thoughtSignature": "CikB0e2Kb2"}], 20, "STOP", thoughts=8),
        ],
        output=20,
        reasoning=8,
    ),
    {
        "rejected": _gemini_error(
            400, "INVALID_ARGUMENT", 'Invalid JSON payload received. Unknown name "x": Cannot find field.'
        ),
        "too_long": _gemini_error(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        ),
        "key": _gemini_error(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "API_KEY_INVALID",
                    "domain": "googleapis.com",
                }
            ],
        ),
        "model": _gemini_error(404, "NOT_FOUND", "models/gemini-none is not found for API version v1beta."),
        "rate": _gemini_error(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}],
        ),
        "server": _gemini_error(500, "INTERNAL", "An internal error has occurred."),
        "overloaded": _gemini_error(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    },
    "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    sse({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}),
)

# --- Ollama -----------------------------------------------------------------------------------------------------------


def _ollama(message: Any, **more: Any) -> bytes:
    line = {
        "model": "llama3.2",
        "created_at": "2023-08-04T08:52:19.385406455-07:00",
        "message": {"role": "assistant", **message},
        "done": False,
    }
    return json.dumps(line | more).encode() + b"\n"


def _ollama_end(output: int) -> bytes:
    return _ollama(
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
    Recording([*(_ollama({"content": word}) for word in WORDS), _ollama_end(12)], _NDJSON),
    Recording(
        [
            *(
                _ollama({"content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
                for name, arguments in CALLS
            ),
            _ollama_end(30),
        ],
        _NDJSON,
        output=30,
    ),
    Recording(
        [
            _ollama({"content": "", "thinking": "Blue, "}),
            _ollama({"content": "", "thinking": "I think."}),
            *(_ollama({"content": word}) for word in WORDS),
            _ollama_end(20),
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
)

PROVIDERS = [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, GEMINI, OLLAMA]
