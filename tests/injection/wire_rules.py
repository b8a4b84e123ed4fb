"""What providers demand of a request, after their public documentation: a sentence for each rule that it breaks.

Each request of a scripted model is written as OpenAI's Chat Completions, OpenAI's Responses and Anthropic's Messages
would get it, and checked there: on the wire, not in our own types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from quiesce.messages import AssistantMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import ScriptedModel
from quiesce.testing import Harness
from tests.providers.recordings import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES


@cache
def _models() -> tuple[Any, Any, Any]:
    nowhere = "http://127.0.0.1:9"
    return OPENAI_CHAT.make(nowhere), OPENAI_RESPONSES.make(nowhere), ANTHROPIC.make(nowhere)


def check_requests(harness: Harness) -> None:
    """Raises `AssertionError` for a request of these runs, the next prompt's included, that a provider would refuse."""
    models = {id(watched.agent.config.model): watched.agent.config.model for watched in harness.watched}
    for model in models.values():
        for request in model.requests if isinstance(model, ScriptedModel) else ():
            if model.supports_prefill and isinstance(request.messages[-1], AssistantMessage):
                continue  # the beginning of an answer, which these providers do not take, and are not given
            found = [*wire_faults(request)]
            assert not found, f"P2: on the wire: {found[0]}"


def wire_faults(request: ModelRequest) -> Iterator[str]:
    """What is wrong with a request for each of the three."""
    chat, responses, anthropic = _models()
    yield from (f"chat: {fault}" for fault in chat_faults(chat.body(request)["messages"]))
    yield from (f"responses: {fault}" for fault in responses_faults(responses.body(request)["input"]))
    yield from (f"anthropic: {fault}" for fault in anthropic_faults(anthropic.body(request)["messages"]))


def chat_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Every call is answered once, directly after its message; nothing is empty; arguments are JSON objects."""
    waiting: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"message {at} answers {message['tool_call_id']}, which is not asked"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"message {at} ({role}) comes before the results of {waiting}"
            waiting.clear()
        calls = message.get("tool_calls") or []
        if not calls and not _has_text(content):
            yield f"message {at} ({role}) is empty"
        if "tool_calls" in message and not calls:
            yield f"message {at} has an empty list of calls"
        for call in calls:
            if call["id"] in seen:
                yield f"the call id {call['id']} is used twice"
            seen.add(call["id"])
            waiting.append(call["id"])
            yield from _argument_faults(call["function"]["arguments"])
    if waiting:
        yield f"{waiting} have no result"
    if messages and messages[-1]["role"] not in ("user", "tool"):
        yield f"the last message is of the {messages[-1]['role']}"


def responses_faults(items: list[dict[str, Any]]) -> Iterator[str]:
    """Every call has one output after it; a reasoning item is followed by what it belongs to; nothing is empty."""
    waiting: list[str] = []
    seen: set[str] = set()
    for at, item in enumerate(items):
        match item.get("type", "message"):
            case "function_call":
                if item["call_id"] in seen:
                    yield f"the call id {item['call_id']} is used twice"
                seen.add(item["call_id"])
                waiting.append(item["call_id"])
                yield from _argument_faults(item["arguments"])
            case "function_call_output":
                if item["call_id"] not in waiting:
                    yield f"item {at} answers {item['call_id']}, which is not asked"
                else:
                    waiting.remove(item["call_id"])
            case "reasoning":
                following = items[at + 1] if at + 1 < len(items) else {}
                if following.get("role", "assistant") != "assistant" or not following:
                    yield f"the reasoning item {at} is without its following item"
            case _:
                if not _has_text(item.get("content")):
                    yield f"item {at} is empty"
                if item.get("role") == "user" and waiting:
                    yield f"item {at} comes before the outputs of {waiting}"
    if waiting:
        yield f"{waiting} have no output"


def anthropic_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Roles alternate from the user on; results open the message after their calls; thinking comes first, signed."""
    asked: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role = message["role"]
        if role != ("user", "assistant")[at % 2]:
            yield f"message {at} is of the {role}"
        blocks = message["content"]
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        if not blocks:
            yield f"message {at} is empty"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"message {at} has an empty text"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(asked):
            yield f"message {at} has results for {results}, and {asked} were asked"
        kinds = [block["type"] for block in blocks]
        if results and "tool_result" in kinds[len(results) :]:
            yield f"message {at} does not begin with its results"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for each in asked:
            if each in seen:
                yield f"the call id {each} is used twice"
            seen.add(each)
        if any(block["type"] == "tool_use" and not isinstance(block["input"], dict) for block in blocks):
            yield f"message {at} has a call whose input is no object"
        thinking = [place for place, kind in enumerate(kinds) if kind in ("thinking", "redacted_thinking")]
        if thinking and (role != "assistant" or thinking[0] != 0):
            yield f"message {at} does not begin with its thinking"
        if any(block["type"] == "thinking" and not block.get("signature") for block in blocks):
            yield f"message {at} has thinking without a signature"
    if asked:
        yield f"{asked} have no result"
    if messages and messages[-1]["role"] != "user":
        yield "the last message is of the assistant"


def _has_text(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return bool(content) and all(part.get("text", "something").strip() for part in content)


def _argument_faults(arguments: str) -> Iterator[str]:
    try:
        if not isinstance(json.loads(arguments), dict):
            yield f"the arguments {arguments!r} are no object"
    except ValueError:
        yield f"the arguments {arguments!r} are not JSON"
