"""Amazon Bedrock ConverseStream on the wire, after its public documentation."""

from __future__ import annotations

import json

from quiesce.models.providers.bedrock import Bedrock

from ..wire import aws_event, refused
from .recording import CALLS, KEY, WORDS, Provider, Recording
from .source import thread
from .sources import BEDROCK_API, BEDROCK_ERRORS


def bedrock_text(index: int) -> list[bytes]:
    return [
        *(
            aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": word}, "p": "abcdefghij"})
            for word in WORDS
        ),
        aws_event("contentBlockStop", {"contentBlockIndex": index, "p": "abc"}),
    ]


def bedrock_end(reason: str, output: int) -> list[bytes]:
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


BEDROCK_START = aws_event("messageStart", {"role": "assistant", "p": "abcdefghijklmn"})


def _bedrock_calls() -> list[bytes]:
    events = [BEDROCK_START]
    for index, (name, arguments) in enumerate(CALLS):
        written = json.dumps(arguments)
        use = {"toolUse": {"toolUseId": f"tooluse_kZJMlvQmRJ6eAyJE5GIl7{index}", "name": name}}
        events.append(aws_event("contentBlockStart", {"contentBlockIndex": index, "start": use}))
        for piece in (written[:6], written[6:]):
            events.append(
                aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}})
            )
        events.append(aws_event("contentBlockStop", {"contentBlockIndex": index}))
    return [*events, *bedrock_end("tool_use", 30)]


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
        [BEDROCK_START, *bedrock_text(0), *bedrock_end("end_turn", 12)],
        _AWS,
        {"x-amzn-requestid": "req_bedrock"},
        cache_read=5,
        complete_at=-2,
    ),
    Recording(_bedrock_calls(), _AWS, output=30, complete_at=-2),
    Recording(
        [
            BEDROCK_START,
            _bedrock_thought({"text": "Blue, "}),
            _bedrock_thought({"text": "I think."}),
            _bedrock_thought({"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}),
            aws_event("contentBlockStop", {"contentBlockIndex": 0}),
            *bedrock_text(1),
            *bedrock_end("end_turn", 20),
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
    {
        **dict.fromkeys(("answer", "calls", "reasoning", "mid_stream_error"), BEDROCK_API),
        "too_long": thread("aws-samples/assessment-generator/issues/2"),
        "model": thread("langchain-ai/open_deep_research/issues/224"),
        **dict.fromkeys(("rejected", "key", "rate", "quota", "server", "overloaded"), BEDROCK_ERRORS),
    },
)
