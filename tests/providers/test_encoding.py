"""Each message is encoded once for a provider, and the joined body says what the plain one says."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.conversation.validity import faults
from quiesce.messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from quiesce.models.base import ModelRequest, ToolSpec
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.wire import encoding

from .recordings import ANTHROPIC, BEDROCK, GEMINI, KEY, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES

pytestmark = pytest.mark.promise("P2")

MODELS: dict[str, Any] = {
    **{
        str(provider): provider.make("http://127.0.0.1:9")
        for provider in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, GEMINI, OLLAMA)
    },
    "bedrock, cached": BEDROCK.make("http://127.0.0.1:9", cache=True),
    "deepseek": OpenAIChat("deepseek-reasoner", server="deepseek", api_key=KEY),
    "mistral": OpenAIChat("mistral-large", server="mistral", api_key=KEY),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
LOOK = ToolSpec("look", "Look somewhere.", {"type": "object", "properties": {"where": {"type": "string"}}})

# --- Random conversations --------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
plain = st.builds(Text, words)
media = st.one_of(
    st.builds(Image, data=st.binary(min_size=1, max_size=8)),
    st.builds(Document, st.just("text/plain"), st.binary(min_size=1, max_size=8), name=st.none() | words),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
signed = st.sampled_from(["anthropic", "bedrock", "gemini", "openai-responses", "another"])
reasoning = st.builds(
    Reasoning,
    words,
    st.none() | words,
    st.booleans(),
    signed.map(lambda provider: {"provider": provider, "id": "rs_1"}),
)
users = st.builds(UserMessage, st.lists(plain | media, min_size=1, max_size=3).map(tuple))
said = st.lists(reasoning | plain | st.builds(CutNote, words), min_size=1, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A valid conversation that ends with what a model is to answer."""
    messages: list[Message] = [draw(users)]
    for turn in range(draw(st.integers(0, 4))):
        calls = [
            ToolCall(f"call_{turn}_{number}", name, draw(st.dictionaries(words, values, max_size=2)))
            for number, name in enumerate(draw(st.lists(st.sampled_from(["look", "gone"]), max_size=2)))
        ]
        messages.append(AssistantMessage((*draw(said), *calls)))
        messages.append(draw(_results(calls)) if calls else draw(users))
    return tuple(messages)


def _results(calls: list[ToolCall]) -> st.SearchStrategy[ToolMessage]:
    contents = st.lists(plain | media, min_size=1, max_size=2).map(tuple)
    return st.tuples(*(st.tuples(contents, st.booleans()) for _ in calls)).map(
        lambda drawn: ToolMessage(
            tuple(
                ToolResult(call.id, call.name, content, is_error=is_error)
                for call, (content, is_error) in zip(calls, drawn, strict=True)
            )
        )
    )


# --- The same meaning ------------------------------------------------------------------------------------------------


@each_model
@given(messages=conversations(), instructions=st.none() | words)
@settings(max_examples=40, deadline=None)
def test_a_joined_body_says_what_the_plain_one_says(
    model: Any, messages: tuple[Message, ...], instructions: str | None
) -> None:
    assert not [fault for fault in faults(messages) if "nothing answers" not in fault]
    for end in range(1, len(messages) + 1):  # as the turns of a run send it: each time with more
        request = ModelRequest(messages[:end], instructions, (LOOK,), settings={"temperature": 0.5})
        joined = encoding.encode(model.body(request, encoded=True))
        assert json.loads(joined) == json.loads(json.dumps(model.body(request)))
    assert json.loads(encoding.encode(model.body(request, encoded=True))) == json.loads(joined)


@each_model
def test_extra_body_and_settings_still_win(model: Any) -> None:
    asked = ModelRequest((UserMessage((Text("Hi."),)),), settings={"messages": [], "input": [], "contents": []})
    body = json.loads(encoding.encode(model.body(asked, encoded=True)))
    assert [body[name] for name in ("messages", "input", "contents")] == [[], [], []]


# --- Once for each message -------------------------------------------------------------------------------------------


def _turns(number: int) -> Iterator[Message]:
    yield UserMessage((Text("Go."),))
    for turn in range(number):
        yield AssistantMessage((ToolCall(f"call_{turn}", "look", {"where": str(turn)}),))
        yield ToolMessage((ToolResult(f"call_{turn}", "look", (Text("Nothing."),)),))


@each_model
def test_a_long_run_encodes_each_message_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = tuple(_turns(200))
    encoded: list[bytes] = []
    monkeypatch.setattr(encoding, "encode", lambda body: encoded.append(msgspec.json.encode(body)) or encoded[-1])
    for end in range(1, len(conversation) + 1, 2):
        model.body(ModelRequest(conversation[:end]), encoded=True)
    assert len(encoded) <= len(conversation)


@each_model
def test_an_encoded_message_is_not_kept(model: Any) -> None:
    gc.disable()
    try:
        message = UserMessage((Text("Soon gone."),))
        model.body(ModelRequest((message,)), encoded=True)
        gone = weakref.ref(message)
        del message
        assert gone() is None
    finally:
        gc.enable()


def test_what_was_made_of_a_message_goes_with_it() -> None:
    encoder = encoding.MessageEncoder(lambda message: ({"said": repr(message)},))
    kept = UserMessage((Text("Kept."),))
    for number in range(100):
        encoder.items((kept, UserMessage((Text(f"{number}"),))), encoded=True)
    assert len(encoder._kept) == 1
    gone = weakref.ref(encoder)
    gc.disable()
    try:
        del encoder
        assert gone() is None
    finally:
        gc.enable()
