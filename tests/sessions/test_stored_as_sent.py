"""What is stored is what was sent: every kind of content, in every store, read by a store that is opened afresh."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from quiesce import Agent, Conversation, RunContext, Session, tool
from quiesce.errors import InvalidAnswer, InvalidConversation, InvalidPrompt
from quiesce.events import (
    AnswerEnd,
    Delta,
    ProviderPartDelta,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from quiesce.interrupts import Approve
from quiesce.messages import (
    AssistantMessage,
    Document,
    Image,
    ProviderPart,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore

from .conftest import StoreMaker
from .kit import stored

pytestmark = pytest.mark.promise("P3", "P9")


# --- Values of subclasses ------------------------------------------------------------------------------------------


class Phrase(str):
    """Text whose `__str__` and `__repr__` say something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"

    def __repr__(self) -> str:
        return f"Phrase({str.__repr__(self)})"


class Colour(str, enum.Enum):  # noqa: UP042  (its `str()` is "Colour.RED", which is the point)
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Count(int):
    """A number of the user's own."""


class Share(float):
    """A number of the user's own."""


class Blob(bytes):
    """Bytes of the user's own."""


class Table(dict[str, Any]):
    """A dict of the user's own."""


class Row(list[Any]):
    """A list of the user's own."""


EXACT: Final = (str, int, float, bool, bytes, type(None), dict, list, tuple)


def odd_types(value: Any) -> set[type]:
    """The types in a message that are neither built in nor a part of a message."""
    if hasattr(value, "__struct_fields__"):
        return set().union(*(odd_types(each) for each in asdict(value).values()))
    if isinstance(value, enum.Enum):  # the outcome of a call
        return set()
    found = set() if type(value) in EXACT else {type(value)}
    if isinstance(value, dict):
        return found.union(*(odd_types(each) for pair in value.items() for each in pair))
    return found.union(*map(odd_types, value)) if isinstance(value, list | tuple) else found


def plain(value: Any) -> Any:
    """What a value means, by a reader that knows these types only."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return "".join(list(value)) if isinstance(value, str) else value


# --- What is sent --------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30).filter(str.strip)
any_words = st.text(st.characters(), min_size=1, max_size=30)  # with halves of surrogate pairs
texts = words | words.map(Phrase) | st.just(Colour.RED)
blobs = st.binary(min_size=1, max_size=50) | st.binary(min_size=1, max_size=50).map(Blob)
numbers = (
    st.integers(-(2**70), 2**70)
    | st.integers(0, 9).map(Count)
    | st.just(Level.HIGH)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(0, 1).map(Share)
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(Row)
        | st.dictionaries(texts, inner, max_size=3)
        | st.dictionaries(words, inner, max_size=3).map(Table)
    ),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3) | st.dictionaries(words, json_values).map(Table)
images = st.builds(Image, st.just("image/png") | st.just(Phrase("image/gif")), blobs) | st.builds(Image, url=texts)
documents = st.builds(Document, st.just("text/plain"), blobs, st.none(), st.none() | texts)
parts = st.builds(Text, texts) | images | documents
prompts = texts | st.lists(texts | parts, min_size=1, max_size=3) | st.builds(UserMessage, st.lists(parts, min_size=1))
# What JSON cannot express, at any depth: a tool may return it, and its result says what it could not.
odd_values = st.recursive(
    st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.integers(-(10**400), 10**400) | json_values,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
tool_values = (
    st.text(max_size=30)
    | any_words.map(Phrase)
    | json_values
    | odd_values
    | parts
    | st.lists(parts, min_size=1, max_size=3)
    | st.builds(ToolResult, texts, texts, st.lists(parts, min_size=1, max_size=2).map(tuple))
)
answers = st.lists(
    st.builds(TextDelta, st.text(max_size=30) | any_words.map(Phrase))
    | st.builds(ReasoningDelta, st.text(max_size=30), st.none() | texts, st.none() | json_objects)
    | st.builds(ProviderPartDelta, texts, texts, json_objects),
    max_size=6,
)
# The arguments of the call, as the model writes them.
ODD_ARGUMENTS: Final = (
    '{"given": 1e400}', '{"given": -1e400}', '{"given": NaN}', '{"given": Infinity}', '{"given": [[[[[[1]]]]]]}',
    '{"given": "\\ud800"}', '{"\\udfff": 1}', '{"given": 1, "given": 2}', '{"given": ' + "9" * 400 + "}",
    '{"given": 0.1e-400}', '{"given": -0.0}', '{"given": ""}', '{"": ""}', "", "[]", "null", '{"given": ', "\ud800",
    '{"given": "\x00"}', '{"given": "\\u0000"}', " {} ",
)  # fmt: skip
arguments = (
    json_values.map(lambda value: json.dumps({"given": plain(value)}))
    | json_values.map(lambda value: json.dumps({"given": plain(value)}, ensure_ascii=False))
    | st.sampled_from(ODD_ARGUMENTS)
    | st.text(max_size=20)
)
# The providers' ids of calls are opaque.
call_ids = st.text(min_size=1, max_size=80).filter(str.strip) | st.just("call_" + "x" * 400) | words.map(Phrase)


class Scripted:
    """A model of the user's own: it yields these deltas, then calls the tool, then ends."""

    name = Phrase("own:model")
    price = None

    def __init__(self, deltas: list[Delta], call: tuple[str, str], provider_data: dict[str, Any] | None) -> None:
        self._deltas = deltas
        self._id, self._arguments = call
        self._provider_data = provider_data
        self._turns = itertools.count()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield self._answer()

    async def _answer(self) -> AsyncGenerator[Delta]:
        if next(self._turns):
            yield TextDelta(Phrase("Done."))
        else:
            for delta in self._deltas:
                yield delta
            yield ToolCallStart(self._id, Phrase("give"), self._provider_data)
            yield ToolCallArguments(self._id, Phrase(self._arguments))
            yield ToolCallEnd(self._id)
        yield AnswerEnd("end_turn")


async def send_and_read(
    stores: tuple[SessionStore, SessionStore],
    name: str,
    *,
    prompt: Any,
    value: Any,
    deltas: list[Delta],
    arguments: str,
    call_id: str,
    data: Any,
    state: Any,
) -> None:
    """Run an agent with these values in one store, and compare what another one reads."""

    @tool
    async def give(given: Any = None) -> Any:
        """Give."""
        return value

    def note(ctx: RunContext[Any]) -> str:
        ctx.state["kept"] = state
        return Phrase("Be brief.")

    agent = Agent(Scripted(deltas, (call_id, arguments), data), tools=[give], instructions=note, name=Phrase("own"))
    writer, reader = stores
    session = Session(Phrase(name), store=writer)
    run = agent.start(prompt, session=session)
    seen = [event async for event in run]
    result = await run
    assert result.receipt.saved is True
    messages = result.messages
    assert odd_types(messages) == set()
    if isinstance(prompt, str):
        assert messages[0] == UserMessage((Text(plain(prompt)),))
    check_answer(messages[1], deltas, arguments)
    assert messages[1].tool_calls[0].provider_data == plain(data)
    assert stored(reader, name) == messages
    fresh = Session(name, store=reader)
    assert await fresh.load() == messages
    assert fresh.state == {"kept": state}
    replayed = [event for _, event in await fresh.events(run.id)]
    live = [event for event in seen if not isinstance(event, RunEnded)]
    assert [event for event in replayed if not isinstance(event, RunEnded)] == live


def check_answer(answer: AssistantMessage, deltas: list[Delta], arguments: str) -> None:
    """What is in the message is what the model sent, as far as JSON and UTF-8 can express it."""
    sent = [each for each in deltas if isinstance(each, ProviderPartDelta)]
    kept = [each for each in answer.content if isinstance(each, ProviderPart)]
    assert kept == [ProviderPart(plain(each.provider), plain(each.kind), plain(each.data)) for each in sent]
    for delta, part in ((TextDelta, Text), (ReasoningDelta, Reasoning)):
        said = "".join(plain(each.text) for each in deltas if isinstance(each, delta))
        assert letters("".join(each.text for each in answer.content if isinstance(each, part))) == letters(said)
    signatures = [plain(each.signature) for each in deltas if isinstance(each, ReasoningDelta) and each.signature]
    assert [each.signature for each in answer.content if isinstance(each, Reasoning) and each.signature] == signatures
    try:
        meant = json.loads(arguments, parse_constant=lambda _: float("nan"))
    except ValueError:
        return
    call = answer.tool_calls[0]
    if isinstance(meant, dict) and is_plain(meant):
        assert call.arguments == meant
        assert call.unparsed is None


def letters(text: str) -> str:
    """A text without blanks, which are not kept alone, and without halves of characters and what comes of them."""
    return "".join(each for each in text if not each.isspace() and (each < "\ud800" or "\ue000" <= each < "\ufffd"))


def is_plain(value: Any) -> bool:
    """Whether JSON and UTF-8 can express a value."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


kinds: Final = {
    "prompt": prompts,
    "value": tool_values,
    "deltas": answers,
    "arguments": arguments,
    "call_id": call_ids,
    "data": st.none() | json_objects,
    "state": json_values,
}


def check_store(new_store: StoreMaker, examples: int) -> None:
    names, writer = itertools.count(), new_store()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(**kinds)
    def holds(**sent: Any) -> None:
        reader = new_store()
        asyncio.run(send_and_read((writer, reader), f"s{next(names)}", **sent))
        if reader is not writer:
            reader.close().result()

    holds()


def test_what_is_stored_is_what_was_sent(new_store: StoreMaker) -> None:
    check_store(new_store, 20)


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_what_is_stored_is_what_was_sent_at_length(new_store: StoreMaker) -> None:
    check_store(new_store, 3000)


# --- One by one ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("P3")
async def test_text_of_a_subclass_is_stored_as_text() -> None:
    @tool
    async def give() -> Phrase:
        """Give."""
        return Phrase("x" * 2000)

    session = Session("s", store=MemoryStore())
    agent = Agent(ScriptedModel([Call("give")], "Done."), tools=[give], session=session)
    result = await agent.invoke_async(Phrase("y" * 2000))
    first, _, answered, _ = stored(session.store, "s")
    assert first.text == "y" * 2000
    assert answered.results[0].text == "x" * 2000
    assert {type(first.text), type(result.messages[0].text), type(result.messages[2].results[0].text)} == {str}


@pytest.mark.promise("P2")
def test_a_conversation_that_is_given_has_exact_types() -> None:
    given = Conversation(
        (
            UserMessage((Text(Phrase("Go.")),)),
            AssistantMessage((ToolCall("c1", "look", Table({Phrase("at"): (Level.HIGH, Colour.RED, Count(2))})),)),
            ToolMessage((ToolResult("c1", "look", (Text(Phrase("Seen.")),)),)),
            AssistantMessage((Reasoning(Phrase("So."), provider_data=Table(a=Row([1]))), Text("Done."))),
        )
    )
    assert odd_types(given.messages) == set()
    assert given.messages[1].tool_calls[0].arguments == {"at": [3, "red", 2]}


NO_JSON: Final[list[Any]] = [float("nan"), float("inf"), object(), "\ud800", {"a": [float("-inf")]}]


@pytest.mark.promise("P2")
@pytest.mark.parametrize("value", NO_JSON, ids=["nan", "inf", "object", "surrogate", "inside"])
def test_what_json_cannot_express_is_refused_where_it_enters(value: Any) -> None:
    call = AssistantMessage((ToolCall("c1", "look", {"at": value}),))
    result = ToolMessage((ToolResult("c1", "look", (Text("Seen."),)),))
    with pytest.raises(InvalidConversation):
        Conversation((UserMessage((Text("Go."),)), call, result, AssistantMessage((Text("Done."),))))


@pytest.mark.promise("P2")
@pytest.mark.parametrize(
    "prompt",
    [[Document(data=b"x", name="\ud800")], [Image(url="\udfff")], UserMessage((Text(5),)), [Image(data="text")]],  # type: ignore[arg-type]
    ids=["name", "url", "number", "data"],
)
def test_a_prompt_that_no_store_could_read_back_is_refused(prompt: Any) -> None:
    with pytest.raises(InvalidPrompt):
        Agent(ScriptedModel("Yes."))(prompt)


@pytest.mark.promise("P4")
async def test_arguments_that_a_person_changed_have_exact_types() -> None:
    @tool(requires_approval=True)
    async def paint(colour: str, layers: int) -> str:
        """Paint."""
        return f"{colour} {layers}"

    agent = Agent(ScriptedModel([Call("paint", {"colour": "blue", "layers": 1})], "Done."), tools=[paint])
    asked = (await agent.invoke_async("Go.")).interrupts[0]
    with pytest.raises(InvalidAnswer):
        await agent.answer_async({asked.id: Approve(arguments={"colour": float("nan"), "layers": 1})})
    answers = {asked.id: Approve(arguments={"colour": Colour.RED, "layers": Level.HIGH})}
    result = await agent.answer_async(answers)
    text = '(A person changed the arguments to {"colour":"red","layers":3}.)\nred 3'
    assert result.messages[2].results[0].text == text
