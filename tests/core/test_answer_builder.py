"""The answer that a model is writing: what each delta becomes, and where an answer is refused."""

from __future__ import annotations

import pytest

from quiesce.conversation.answer import AnswerBuilder
from quiesce.errors import ModelProtocolError
from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    Delta,
    ProviderPartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from quiesce.messages import Text
from quiesce.usage.estimate.pieces import GROUP

pytestmark = pytest.mark.promise("P3")


class Name(str):
    """A string that is more than a string."""

    __slots__ = ()


def built(*deltas: Delta) -> AnswerBuilder:
    builder = AnswerBuilder()
    for delta in deltas:
        builder.add(delta)
    return builder


def test_each_delta_is_returned_for_the_readers() -> None:
    deltas: list[Delta] = [
        AnswerStart("request"),
        ReasoningDelta("hm"),
        TextDelta("Well"),
        ProviderPartDelta("anthropic", "server_tool", {"a": 1}),
        ToolCallStart("a", "look"),
        ToolCallArguments("a", "{}"),
        ToolCallEnd("a"),
        UsageDelta(1, 2),
        AnswerEnd("end_turn"),
    ]
    builder = AnswerBuilder()
    assert [builder.add(delta) for delta in deltas] == deltas


def test_strings_of_a_class_of_their_own_reach_readers_as_plain_strings() -> None:
    builder = built(ToolCallStart("a", "look"), ToolCallArguments("a", "{}"))
    ended, said = builder.add(ToolCallEnd(Name("a"))), builder.add(TextDelta(Name("Well")))
    assert isinstance(ended, ToolCallEnd)
    assert isinstance(said, TextDelta)
    assert (type(ended.id), type(said.text)) == (str, str)


def test_the_text_of_an_answer_is_what_it_says_and_nothing_else() -> None:
    builder = built(ReasoningDelta("hm"), TextDelta("Well, "), ToolCallStart("a", "look"), TextDelta("yes."))
    assert builder.text() == "Well, yes."


@pytest.mark.parametrize(
    "delta", [TextDelta, ReasoningDelta, lambda text: ToolCallArguments("a", text)], ids=["text", "reasoning", "call"]
)
def test_an_answer_may_be_as_long_as_the_error_says_and_no_longer(delta) -> None:
    builder = built(ToolCallStart("a", "look"))
    for _ in range(5):
        builder.add(delta("x" * 1_000_000))
    with pytest.raises(ModelProtocolError, match="more than 5,000,000 characters"):
        builder.add(delta("x"))


@pytest.mark.promise("P6")
def test_what_was_written_since_the_last_report_is_counted_alone() -> None:
    builder = built(TextDelta("One two "), UsageDelta(5))
    assert builder.blocks_since_report() is None, "a report of the input says nothing of the output"
    builder.add(UsageDelta(5, 2))
    builder.add(TextDelta("three"))
    (block,) = builder.blocks_since_report() or ()
    assert (block.parts.text(), block.context) == ("three", "One two ")


@pytest.mark.parametrize("delta", [TextDelta, ReasoningDelta])
def test_long_answers_are_joined_in_groups_while_they_come(delta) -> None:
    """Joining a million pieces at the stop would hold the event loop for 30 ms."""
    builder = built(*[delta("x")] * (2 * GROUP + 1))
    (block,) = builder.blocks()
    assert [len(group) for group in block.parts._groups] == [GROUP, GROUP]


@pytest.mark.promise("P1")
def test_each_delta_that_brings_something_shows_in_the_extent_of_the_answer() -> None:
    """By which a stream that has stalled is told from one that goes on."""
    builder = AnswerBuilder()
    extents = [builder.extent()]
    for delta in (
        TextDelta("Well"),
        ToolCallStart("a", "look"),
        ToolCallArguments("a", "{}"),
        ToolCallEnd("a"),
        UsageDelta(1, 2),
        AnswerEnd("end_turn"),
    ):
        builder.add(delta)
        extents.append(builder.extent())
    assert len(set(extents)) == 7


@pytest.mark.promise("P7")
def test_what_is_no_delta_is_refused_in_words() -> None:
    with pytest.raises(ModelProtocolError, match="yielded a str, which is not a delta"):
        AnswerBuilder().add("Well")  # pyright: ignore[reportArgumentType]


def test_an_answer_that_goes_on_with_earlier_text_is_cut_only_where_nothing_followed() -> None:
    earlier = Text("Once upon")
    whole = AnswerBuilder((), (earlier,))
    assert whole.content() == (Text("Once upon", cut=True),)
    whole.add(AnswerEnd())
    assert whole.content() == (earlier,)
    asks = AnswerBuilder((), (earlier,))
    asks.add(ToolCallStart("c", "look"))
    asks.add(ToolCallEnd("c"))
    assert asks.content()[0] == earlier
