"""Google Gemini on the wire, after its public documentation."""

from __future__ import annotations

from typing import Any

from quiesce.models.providers.gemini import Gemini

from ..wire import refused, sse
from .recording import CALLS, KEY, WORDS, Provider, Recording
from .sources import GEMINI_ERROR_SHAPE, GEMINI_OVERLOADED, GEMINI_QUOTA, GEMINI_TYPES, TOO_LONG


def gemini(
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
            gemini([{"text": WORDS[0]}], 3, cached=5),
            gemini([{"text": WORDS[1]}], 6, cached=5),
            gemini([{"text": WORDS[2]}], 12, "STOP", cached=5),
        ],
        cache_read=5,
    ),
    Recording(
        [
            gemini(
                [
                    {
                        "functionCall": {"name": name, "args": arguments},
                        **({"thoughtSignature": "CikB0e2Kb1"} if not index else {}),
                    }
                    for index, (name, arguments) in enumerate(CALLS)
                ],
                30,
            ),
            gemini([{"text": ""}], 30, "STOP"),
        ],
        output=30,
    ),
    Recording(
        [
            gemini([{"text": "Blue, ", "thought": True}], None),
            gemini([{"text": "I think.", "thought": True}], 8, thoughts=8),
            *(gemini([{"text": word}], 12, thoughts=8) for word in WORDS),
            gemini([{"text": "", "thoughtSignature": "CikB0e2Kb2"}], 20, "STOP", thoughts=8),
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
    {
        **dict.fromkeys(("answer", "calls", "reasoning"), GEMINI_TYPES),
        "mid_stream_error": GEMINI_ERROR_SHAPE,
        "too_long": TOO_LONG,
        "rate": GEMINI_QUOTA,
        "overloaded": GEMINI_OVERLOADED,
        **dict.fromkeys(("rejected", "key", "model", "server"), GEMINI_ERROR_SHAPE),
    },
)
