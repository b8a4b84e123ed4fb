"""The rules of the providers find what breaks them."""

from __future__ import annotations

import json

import pytest

from .wire_rules import anthropic_faults, chat_faults, responses_faults

pytestmark = pytest.mark.promise("P2")

USER = {"role": "user", "content": "Hi"}


def chat_call(*ids: str, arguments: str = "{}") -> dict:
    calls = [{"id": each, "function": {"name": "f", "arguments": arguments}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id: str) -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER, chat_call("a")],
        [USER, chat_call("a"), USER],
        [USER, chat_call("a", "b"), chat_result("a"), USER],
        [USER, chat_call("a"), chat_result("a"), chat_result("a")],
        [USER, chat_result("a")],
        [USER, chat_call("a", arguments="{"), chat_result("a")],
        [USER, chat_call("a"), chat_result("a"), chat_call("a"), chat_result("a")],
        [USER, {"role": "assistant", "content": " "}, USER],
        [USER, {"role": "assistant", "content": "Hello"}],
    ],
)
def test_chat(messages):
    assert [*chat_faults(messages)]
    assert not [*chat_faults([USER, chat_call("a", "b"), chat_result("b"), chat_result("a"), USER])]


@pytest.mark.parametrize(
    "items",
    [
        [{"type": "function_call", "call_id": "a", "arguments": "{}"}],
        [{"type": "function_call", "call_id": "a", "arguments": "["}, {"type": "function_call_output", "call_id": "a"}],
        [{"type": "function_call_output", "call_id": "a"}],
        [USER, {"type": "reasoning", "id": "r"}],
        [USER, {"type": "reasoning", "id": "r"}, USER],
        [{"role": "assistant", "content": [{"type": "output_text", "text": ""}]}, USER],
    ],
)
def test_responses(items):
    assert [*responses_faults(items)]
    call = {"type": "function_call", "call_id": "a", "arguments": json.dumps({"x": 1})}
    whole = [USER, {"type": "reasoning", "id": "r"}, call, {"type": "function_call_output", "call_id": "a"}, USER]
    assert not [*responses_faults(whole)]


def said(*blocks: dict) -> dict:
    return {"role": "assistant", "content": list(blocks)}


def answered(*blocks: dict) -> dict:
    return {"role": "user", "content": list(blocks)}


CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
TEXT = {"type": "text", "text": "Hm"}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "s"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER, USER],
        [said(TEXT), USER],
        [USER, said(TEXT)],
        [USER, said(CALL), USER],
        [USER, said(CALL), answered(TEXT, RESULT)],
        [USER, said(CALL), answered(RESULT, RESULT)],
        [USER, said(TEXT), answered(RESULT)],
        [USER, said({"type": "text", "text": " "}), USER],
        [USER, said(), USER],
        [USER, said(TEXT, THOUGHT), USER],
        [USER, said({**THOUGHT, "signature": ""}, TEXT), USER],
        [USER, said(CALL), answered(RESULT), said(CALL), answered(RESULT)],
    ],
)
def test_anthropic(messages):
    assert [*anthropic_faults(messages)]
    assert not [*anthropic_faults([USER, said(THOUGHT, TEXT, CALL), answered(RESULT, TEXT)])]
