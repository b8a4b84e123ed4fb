"""OpenAI Responses on the wire, after its public documentation."""

from __future__ import annotations

import json
from typing import Any

from quiesce.models.providers.openai_responses import OpenAIResponses

from ..wire import sse
from .openai_chat import OPENAI_CHAT
from .recording import ANSWER, CALLS, KEY, THOUGHT, WORDS, Provider, Recording
from .sources import OPENAI_ERROR_SOURCES, RESPONSES_CALL, RESPONSES_ERROR, RESPONSES_REASONING, RESPONSES_TEXT


class Responses:
    """Numbers the events, as the API does."""

    def __init__(self) -> None:
        self.number = -1

    def __call__(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        return sse({"type": kind, "sequence_number": self.number, **fields}, kind)


def response(status: str, usage: Any = None) -> dict[str, Any]:
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


def responses_usage(output: int, reasoning: int = 0, cached: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": 25,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": 25 + output,
    }


def responses_text(event: Responses, index: int) -> list[bytes]:
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
    event = Responses()
    return [
        event("response.created", response=response("in_progress")),
        event("response.in_progress", response=response("in_progress")),
        *responses_text(event, 0),
        event("response.completed", response=response("completed", responses_usage(12, cached=5))),
    ]


def _responses_calls() -> list[bytes]:
    event = Responses()
    events = [event("response.created", response=response("in_progress"))]
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
    return [*events, event("response.completed", response=response("completed", responses_usage(30)))]


def _responses_reasoning() -> list[bytes]:
    event = Responses()
    item = {"id": "rs_67c9", "type": "reasoning", "summary": []}
    place = {"item_id": "rs_67c9", "output_index": 0, "summary_index": 0}
    return [
        event("response.created", response=response("in_progress")),
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
        *responses_text(event, 1),
        event("response.completed", response=response("completed", responses_usage(20, reasoning=8))),
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
    {
        "answer": RESPONSES_TEXT,
        "calls": RESPONSES_CALL,
        "reasoning": RESPONSES_REASONING,
        "mid_stream_error": RESPONSES_ERROR,
        **OPENAI_ERROR_SOURCES,
    },
)
