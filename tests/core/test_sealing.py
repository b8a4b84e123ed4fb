"""What makes a conversation valid, how a torn one is sealed, and the draft that an answer grows in."""

import json
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.conversation.answer import AnswerBuilder, parse_arguments, well_formed
from quiesce.conversation.sealing import SENTENCES, close_turn, seal_pending, seal_turn, still_asked, unfinished
from quiesce.conversation.validity import check, faults
from quiesce.errors import InvalidConversation, ModelProtocolError
from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from quiesce.interrupts import Interrupt, PendingCall, PendingLimit, PendingTurn
from quiesce.messages import (
    AssistantMessage,
    CutNote,
    Document,
    Image,
    Message,
    Outcome,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

pytestmark = pytest.mark.promise("P2", "P3")

USER = UserMessage((Text("hi"),))
ANSWER = AssistantMessage((Text("hello"),))


def asking(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple(ToolCall(each, "t", {}) for each in ids))


def answering(*ids: str) -> ToolMessage:
    return ToolMessage(tuple(ToolResult(each, "t", (Text("ok"),)) for each in ids))


VALID = [
    (),
    (USER,),
    (USER, ANSWER),
    (USER, ANSWER, USER),
    (USER, asking("a"), answering("a")),
    (USER, asking("a", "b"), answering("a", "b"), ANSWER),
    (USER, asking("a"), answering("a"), asking("b"), answering("b"), ANSWER, USER),
    (USER, AssistantMessage((Reasoning("hm"), Text("x"), CutNote("cut")), cut=True)),
    (UserMessage((Image(url="u"), Document(data=b"d"))), ANSWER),
]


@pytest.mark.parametrize("messages", VALID)
def test_valid(messages):
    assert faults(messages) == ()
    check(messages)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((ANSWER,), "assistant after start"),
        ((answering("a"),), "tool after start"),
        ((USER, USER), "user after user"),
        ((USER, ANSWER, ANSWER), "assistant after assistant"),
        ((USER, answering("a")), "tool after user"),
        ((USER, asking("a")), "nothing answers"),
        ((USER, asking("a"), USER), "user after assistant with calls"),
        ((USER, asking("a"), ANSWER), "assistant after assistant with calls"),
        ((USER, asking("a", "b"), answering("a")), "do not answer the calls"),
        ((USER, asking("a", "b"), answering("b", "a")), "do not answer the calls"),
        ((USER, asking("a"), answering("a", "a")), "do not answer the calls"),
        ((USER, asking("a", "a"), answering("a", "a")), "used twice"),
        ((USER, asking("a"), answering("a"), asking("a"), answering("a")), "used twice"),
        ((USER, asking("a b"), answering("a b")), "characters that providers refuse"),
        ((USER, AssistantMessage((ToolCall("a", "x y", {}),)), answering("a")), "not one that providers accept"),
        ((USER, AssistantMessage((ToolCall("a", "x" * 65, {}),)), answering("a")), "not one that providers accept"),
        ((USER, AssistantMessage((ToolCall("a", "t", {"x": object()}),)), answering("a")), "are not JSON"),
        ((USER, AssistantMessage(())), "no content"),
        ((UserMessage(()),), "no content"),
        ((UserMessage((Text(" \n"),)),), "blank text"),
        ((UserMessage((Text("\ud800"),)),), "cannot be encoded"),
        ((USER, AssistantMessage((Reasoning("\ud800"),))), "reasoning that cannot be encoded"),
        ((USER, AssistantMessage((CutNote(""),))), "blank text"),
        ((UserMessage((Image(),)),), "neither data nor url"),
        ((UserMessage((ToolCall("a", "t", {}),)),), "has no place there"),
        ((USER, AssistantMessage((Image(url="x"),))), "has no place there"),
        ((USER, asking("a"), ToolMessage((ToolResult("a", "t", ()),))), "no content"),
    ],
)
def test_not_valid(messages, fault):
    assert any(fault in found for found in faults(messages))
    with pytest.raises(InvalidConversation, match="not valid") as caught:
        check(messages)
    assert caught.value.faults == faults(messages)


def test_every_outcome_but_completed_has_a_sentence():
    assert set(SENTENCES) == set(Outcome) - {Outcome.COMPLETED}
    result = unfinished(ToolCall("a", "t", {}), Outcome.KILLED)
    assert (result.is_error, result.text) == (True, SENTENCES[Outcome.KILLED])
    assert unfinished(ToolCall("a", "t", {}), Outcome.KILLED, "own words").text == "own words"


def test_closing():
    note = AssistantMessage((CutNote("n"),), cut=True)
    torn = AssistantMessage((Text("x", cut=True),), cut=True)
    assert close_turn((), (), "n") == ()
    assert close_turn((), (USER,), "n") == (note,)
    assert close_turn((), (USER, ANSWER), "n") == ()
    assert close_turn((ANSWER,), (USER,), "n") == (ANSWER,)
    assert close_turn((torn,), (USER,), "n") == (AssistantMessage((Text("x", cut=True), CutNote("n")), cut=True),)
    assert close_turn((), (USER, torn), "n") == ()
    turn = (asking("a"), answering("a"))
    assert close_turn(turn, (USER,), "n") == (*turn, note)


# --- Drafts ---------------------------------------------------------------------------------------------------------


def draft_of(*deltas) -> AnswerBuilder:
    draft = AnswerBuilder()
    for delta in deltas:
        draft.add(delta)
    return draft


def test_an_empty_draft():
    draft = AnswerBuilder()
    assert (draft.content(), draft.complete, draft.has_content, draft.text()) == ((), False, False, "")
    assert seal_turn(draft, {}) == ()
    assert seal_turn(None, {}) == ()
    draft.close()
    assert not draft.is_open


def test_only_the_last_block_is_torn():
    draft = draft_of(ReasoningDelta("hm"), TextDelta("a"), TextDelta("b"))
    assert draft.content() == (Reasoning("hm"), Text("ab", cut=True))
    draft.add(AnswerEnd())
    assert draft.content() == (Reasoning("hm"), Text("ab"))


def test_reasoning_that_is_signed_is_whole():
    draft = draft_of(ReasoningDelta("hm"), ReasoningDelta("", "sig", {"k": 1}))
    assert draft.content() == (Reasoning("hm", "sig", False, {"k": 1}),)
    draft.add(ReasoningDelta("more"))
    assert draft.content()[1] == Reasoning("more", None, True)


def test_provider_data_of_reasoning_is_merged():
    draft = draft_of(ReasoningDelta("a", None, {"x": 1}), ReasoningDelta("b", None, {"y": 2}))
    assert draft.content()[0].provider_data == {"x": 1, "y": 2}
    assert draft_of(ReasoningDelta("")).content() == ()


def test_a_torn_call_is_left_out_and_named():
    draft = draft_of(ToolCallStart("a", "t"), ToolCallArguments("a", '{"x'))
    assert draft.content() == ()
    assert draft.torn_calls() == (("a", "t"),)
    assert [block.parts for block in draft.blocks()] == [['{"x']]


def test_figures_are_cumulative_and_what_is_left_out_stands():
    draft = draft_of(UsageDelta(input=5), UsageDelta(output=1), UsageDelta(output=3, final=True))
    assert draft.usage == UsageDelta(input=5, output=3, final=True)
    assert draft_of(AnswerStart("id"), AnswerStart()).request_id == "id"


def test_nothing_follows_the_end_but_usage():
    draft = draft_of(TextDelta("x"), AnswerEnd(), UsageDelta(output=1))
    for delta in (TextDelta("y"), ReasoningDelta("y"), ToolCallStart("a", "t"), AnswerEnd()):
        with pytest.raises(ModelProtocolError, match="went on after the end"):
            draft.add(delta)


@given(st.text(st.characters(categories=("Cs", "L", "Zs")), max_size=20))
@settings(max_examples=200, deadline=None)
def test_well_formed_text_can_always_be_encoded(text):
    kept = well_formed(text)
    kept.encode()
    if not any("\ud800" <= each <= "\udfff" for each in text):
        assert kept == text
    assert len(kept) <= len(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=8,
)


@given(st.text(max_size=30) | _JSON.map(json.dumps))
@settings(max_examples=200, deadline=None)
def test_arguments_are_a_json_object_or_none(written):
    parsed = parse_arguments(written)
    try:
        meant = json.loads(written) if written.strip() else {}
    except ValueError:
        meant = None
    assert parsed == (meant if isinstance(meant, dict) else None)


# --- Anything that a model may send, cut anywhere -------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "a b", "", "é"])
words = st.text(st.characters(codec=None, categories=("L", "Zs", "Cs", "Nd")), max_size=6)
deltas = st.one_of(
    st.builds(TextDelta, words),
    st.builds(ReasoningDelta, words, st.none() | st.just("sig")),
    st.builds(ToolCallStart, ids, st.sampled_from(["t", "no such", ""])),
    st.builds(ToolCallArguments, ids, st.sampled_from(["{}", '{"x": 1}', "{", "[1]", "NaN", "", '"\\ud800"'])),
    st.builds(ToolCallEnd, ids),
    st.builds(UsageDelta, st.integers(0, 9), st.integers(0, 9)),
    st.builds(AnswerEnd, st.sampled_from(["end_turn", "tool_use", "max_tokens"])),
)


def letters(text: str) -> str:
    """A text without blanks, which are not kept alone, and without halves of characters and what comes of them."""
    return "".join(each for each in text if not each.isspace() and (each < "\ud800" or "\ue000" <= each < "\ufffd"))


@given(st.lists(deltas, max_size=25), st.lists(st.sampled_from(["a", "b"])))
@settings(max_examples=400, deadline=None)
def test_whatever_a_model_sends_and_wherever_it_is_cut_the_conversation_is_valid(sent, taken):
    draft = AnswerBuilder(taken)
    before: tuple[Message, ...] = (USER,)
    said = ""
    for delta in sent:
        try:
            draft.add(delta)
        except ModelProtocolError:
            continue
        if isinstance(delta, TextDelta):
            said += delta.text
        turn = seal_turn(draft, {})
        assert faults((*before, *turn)) == ()
        closed = (*before, *close_turn(turn, before, "(cut)"))
        assert faults(closed) == ()
        assert isinstance(closed[-1], AssistantMessage)
        assert faults((*closed, USER)) == ()
        assert msgspec.json.decode(msgspec.json.encode(closed), type=tuple[Message, ...]) == closed
        kept = "".join(message.text for message in turn if isinstance(message, AssistantMessage))
        assert letters(kept) == letters(said)
        finished = [part for part in draft.content() if isinstance(part, ToolCall)]
        results = [result for message in turn if isinstance(message, ToolMessage) for result in message.results]
        assert [result.call_id for result in results] == [call.id for call in finished]
        assert all(result.outcome is Outcome.NEVER_STARTED for result in results)


@pytest.mark.promise("P4")
def test_a_dropped_approval_says_whether_the_tool_had_begun():
    calls = (ToolCall("a", "asks_inside", {}), ToolCall("b", "never_approved", {}))
    pending = PendingTurn("r", AssistantMessage(calls), (PendingCall(calls[0], started=True), PendingCall(calls[1])))
    results = seal_pending(pending, "Stopped.")[1].results
    assert [each.outcome for each in results] == [Outcome.CANCELLED, Outcome.NEVER_STARTED]


@pytest.mark.promise("P4")
def test_a_dropped_approval_says_why_each_call_did_not_run():
    answer = asking("inside", "asked", "approved")
    inside, asked, approved = answer.tool_calls
    question = Interrupt("1", "t", "approval", asked.id, asked.name, {})
    calls = (
        PendingCall(inside, interrupts=(question,), started=True),
        PendingCall(asked, interrupts=(question,)),
        PendingCall(approved, approved=True),
    )
    results = seal_pending(PendingTurn("r", answer, calls), "Stopped.")[1].results
    assert [each.text for each in results] == [
        "Stopped while it was running: a person was asked, and did not answer. Its work may be incomplete.",
        "Not run: a person was asked first, and did not answer.",
        "Not run: a person was asked about another call of the same answer, and did not answer.",
    ]


@pytest.mark.promise("P4")
def test_the_calls_of_a_turn_that_waits_at_a_limit_say_that_it_was_reached():
    answer = asking("a")
    question = Interrupt("1", "turns", "limit", "", "", {})
    limit = PendingLimit(question, "tool_calls", Decimal(1), {}, "reached")
    pending = PendingTurn("r", answer, (PendingCall(answer.tool_calls[0]),), limit=limit)
    assert seal_pending(pending, "Stopped.")[1].results[0].text == "Not run: a limit was reached first."


@pytest.mark.promise("P4")
@pytest.mark.parametrize("begun", [True, False])
def test_a_question_outlives_its_run_and_a_call_that_may_have_run_is_unknown(begun: bool) -> None:
    answer = asking("free", "asked")
    free, asked = answer.tool_calls
    question = Interrupt("1", "t", "approval", asked.id, asked.name, {})
    taken = PendingTurn("run", answer, (PendingCall(free), PendingCall(asked, interrupts=(question,))), taken_by="run")
    waiting = still_asked(taken, {}, begun=begun)
    assert waiting is not None
    assert waiting.taken_by is None
    first, second = waiting.calls
    assert (first.result and first.result.outcome) == (Outcome.UNKNOWN if begun else None)
    assert (second.result, second.interrupts) == (None, (question,))
    assert still_asked(taken, {asked.id: unfinished(asked, Outcome.CANCELLED)}, begun=begun) is None
