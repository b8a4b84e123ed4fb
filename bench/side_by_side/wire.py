"""OpenAI's Chat Completions and Responses: reading a request, and writing an answer whole or streamed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from .answers import Answer, Request

_numbers = itertools.count(1)
CREATED = 1741290958


def text_of(content: Any) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))


def _data(body: dict[str, Any], kind: str = "") -> bytes:
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {json.dumps(body)}\n\n".encode()


def _numbered(answer: Answer) -> list[tuple[str, str, str]]:
    return [(f"call_{next(_numbers)}", name, json.dumps(arguments)) for name, arguments in answer.calls]


# --- Chat Completions -----------------------------------------------------------------------------------------------


def read_chat(body: dict[str, Any]) -> Request:
    """A request to `/chat/completions`."""
    messages = body["messages"]
    last_prompt = max((at for at, each in enumerate(messages) if each["role"] == "user"), default=0)
    results = [text_of(each["content"]) for each in messages[last_prompt:] if each["role"] == "tool"]
    functions = [each["function"] for each in body.get("tools") or []]
    return Request(
        model=body["model"],
        texts=[(each["role"], text_of(each.get("content"))) for each in messages],
        results=results,
        tools={each["name"]: each.get("parameters", {}).get("properties", {}) for each in functions},
        has_schema=(body.get("response_format") or {}).get("type") == "json_schema",
        calls=sum(len(each.get("tool_calls") or ()) for each in messages),
        unanswered=sum(len(each.get("tool_calls") or ()) - (each["role"] == "tool") for each in messages),
    )


_CHAT_USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


def _chat_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"index": at, "id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (call, name, arguments) in enumerate(_numbered(answer))
    ]


def whole_chat(model: str, answer: Answer) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = _chat_calls(answer)
    reason = "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": f"chatcmpl-{next(_numbers)}", "object": "chat.completion", "created": CREATED, "model": model}
    return {**head, "choices": [choice], "usage": _CHAT_USAGE}


def chat_begin(model: str, answer: Answer) -> Iterator[bytes]:
    """The events of a streamed answer up to its last word."""
    yield _chat_chunk(model, {"role": "assistant", "content": ""})
    for piece in answer.pieces:
        yield _chat_chunk(model, {"content": piece})
    if answer.calls:
        yield _chat_chunk(model, {"tool_calls": _chat_calls(answer)})


def chat_end(model: str, answer: Answer) -> Iterator[bytes]:
    """The events that end a streamed answer."""
    yield _chat_chunk(model, {}, reason="tool_calls" if answer.calls else "stop")
    yield _data({**_chat_head(model), "choices": [], "usage": _CHAT_USAGE})
    yield b"data: [DONE]\n\n"


def _chat_head(model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": model}


def _chat_chunk(model: str, delta: dict[str, Any], reason: str | None = None) -> bytes:
    return _data({**_chat_head(model), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


# --- Responses ------------------------------------------------------------------------------------------------------


def read_responses(body: dict[str, Any]) -> Request:
    """A request to `/responses`."""
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    last_prompt = max((at for at, each in enumerate(items) if each.get("role") == "user"), default=0)
    results = [text_of(each["output"]) for each in items[last_prompt:] if each.get("type") == "function_call_output"]
    answered = {each["call_id"] for each in items if each.get("type") == "function_call_output"}
    tools = [each for each in body.get("tools") or [] if each["type"] == "function"]
    texts = [(each["role"], text_of(each.get("content"))) for each in items if "role" in each]
    return Request(
        model=body["model"],
        texts=texts,
        results=results,
        tools={each["name"]: (each.get("parameters") or {}).get("properties", {}) for each in tools},
        has_schema=((body.get("text") or {}).get("format") or {}).get("type") == "json_schema",
        calls=sum(each.get("type") == "function_call" for each in items),
        unanswered=len({each["call_id"] for each in items if each.get("type") == "function_call"} - answered),
    )


def whole_response(model: str, answer: Answer, status: str = "completed") -> dict[str, Any]:
    """The answer to a request that does not stream, and the end of one that does."""
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30, **details}
    done = status == "completed"
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": _items(answer) if done else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if done else None,
    }


def _items(answer: Answer) -> list[dict[str, Any]]:
    if not answer.calls:
        return [_message(answer.text)]
    return [
        {"id": f"fc_{call}", "type": "function_call", "status": "completed", "call_id": call, "name": name}
        | {"arguments": arguments}
        for call, name, arguments in _numbered(answer)
    ]


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


class ResponseStream:
    """The events of a streamed answer, which are numbered."""

    def __init__(self, model: str, answer: Answer) -> None:
        self._model = model
        self._answer = answer
        self._number = itertools.count()
        self._whole = whole_response(model, answer)

    def begin(self) -> Iterator[bytes]:
        """The events up to the last word."""
        yield self._event("response.created", response=whole_response(self._model, self._answer, "in_progress"))
        if self._answer.calls:
            return
        item = _message("") | {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=0, item=item)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._event("response.content_part.added", **self._place(), part=part)
        for piece in self._answer.pieces:
            yield self._event("response.output_text.delta", **self._place(), delta=piece, logprobs=[])

    def end(self) -> Iterator[bytes]:
        """The events that end the answer."""
        for at, item in enumerate(self._whole["output"]):
            if item["type"] == "function_call":
                begun = item | {"arguments": "", "status": "in_progress"}
                place = {"item_id": item["id"], "output_index": at}
                yield self._event("response.output_item.added", output_index=at, item=begun)
                yield self._event("response.function_call_arguments.delta", **place, delta=item["arguments"])
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield self._event("response.function_call_arguments.done", **place, **done)
            else:
                part = item["content"][0]
                yield self._event("response.output_text.done", **self._place(), text=part["text"], logprobs=[])
                yield self._event("response.content_part.done", **self._place(), part=part)
            yield self._event("response.output_item.done", output_index=at, item=item)
        yield self._event("response.completed", response=self._whole)

    def _place(self) -> dict[str, Any]:
        return {"item_id": "msg_1", "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        return _data({"type": kind, "sequence_number": next(self._number), **fields}, kind)
