"""Limits: safe by default, chosen by `on_limit`, raised by a person, and shown on the receipt."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from pydantic import BaseModel

from quiesce import Agent, Conversation, Limits, Price, Session, ToolContext, tool
from quiesce.conversation.conversation import ConversationState
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, InvalidAnswer, OutputMissing
from quiesce.events import InterruptRaised
from quiesce.hooks import AfterRun, OnMessage
from quiesce.interrupts import Approve, Deny
from quiesce.messages import AssistantMessage, ToolMessage, UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Used

pytestmark = pytest.mark.promise("P6", "P7")


@tool
async def look(what: str = "") -> str:
    """Look at something."""
    return f"nothing {what}"


@tool
async def tick(ctx: ToolContext) -> int:
    """A number that is never the same."""
    ctx.state["ticks"] = ctx.state.get("ticks", 0) + 1
    return int(ctx.state["ticks"])


def busy(**options: Any) -> Agent:
    """An agent that never comes to an end by itself, and makes progress all the time."""
    return Agent(ScriptedModel(then=[Call("tick")]), tools=[tick, look], **options)


# --- Defaults --------------------------------------------------------------------------------------------------------


def test_an_agent_that_never_ends_is_stopped_after_a_hundred_turns() -> None:
    model = ScriptedModel(then=[Call("tick")])
    result = Agent(model, tools=[tick])("go")
    assert result.stop_reason == "limit"
    assert str(result.receipt.cause) == "budget: The limit of 100 turns is reached"
    assert len(model.requests) == 100


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(), "Limits(turns=100, repeated_calls=10)"),
        (Limits(turns=None), "Limits(turns=None, repeated_calls=10)"),
        (Limits(cost="1"), "Limits(turns=100, repeated_calls=10, cost='1')"),
        (Limits(turns=3, tokens=5, repeated_calls=None), "Limits(turns=3, repeated_calls=None, tokens=5)"),
    ],
)
def test_defaults_stay_unless_they_are_switched_off(limits: Limits, text: str) -> None:
    assert repr(limits) == text
    assert repr(eval(text)) == text


def test_none_switches_a_limit_off() -> None:
    turns = [[Call("tick")]] * 150
    agent = Agent(ScriptedModel(*turns, "Done."), tools=[tick], limits=Limits(turns=None))
    assert agent("go").output == "Done."


@pytest.mark.parametrize("wrong", [{"repeated_calls": 1}, {"repeated_calls": "5"}, {"turns": 0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="makes no sense"):
        Limits(**wrong)


def test_an_unknown_on_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_limit"):
        busy(on_limit="shrug")
    with pytest.raises(ConfigurationError, match="on_limit"):
        busy()("go", on_limit="shrug")  # pyright: ignore[reportArgumentType]


def test_the_limits_of_a_parent_count_for_the_runs_below() -> None:
    child = Agent(ScriptedModel(then=[Call("tick")]), tools=[tick], name="child")
    parent = Agent(ScriptedModel(then=[Call("child", {"prompt": "go"})]), tools=[child], limits=Limits(turns=5))
    result = parent("go")
    assert result.stop_reason == "limit"
    assert "with those of the runs below" in str(result.receipt.cause)


# --- Repeated calls --------------------------------------------------------------------------------------------------


def test_the_same_call_with_the_same_result_ten_times_in_a_row_stops_the_run() -> None:
    model = ScriptedModel(then=[Call("look", {"what": "here"})])
    result = Agent(model, tools=[look])("go")
    assert result.stop_reason == "limit"
    assert len(model.requests) == 10
    cause = str(result.receipt.cause)
    assert "The tool look gave the same result to the same call 10 times in a row" in cause
    assert "Limits(repeated_calls=...)" in cause
    assert "look x10: completed" in str(result.receipt)
    assert "repeated calls 10 of 10 (reached)" in str(result.receipt)


def test_sets_of_parallel_calls_are_compared_whatever_their_order() -> None:
    one, two = Call("look", {"what": "a"}), Call("look", {"what": "b"})
    model = ScriptedModel(*[[one, two], [two, one]] * 20)
    result = Agent(model, tools=[look], limits=Limits(repeated_calls=4))("go")
    assert (result.stop_reason, len(model.requests)) == ("limit", 4)


@pytest.mark.parametrize(
    "different",
    [Call("look", {"what": "elsewhere"}), Call("tick"), [Call("look", {"what": "here"}), Call("tick")]],
    ids=["arguments", "tool", "set"],
)
def test_another_call_starts_the_count_anew(different: Any) -> None:
    same = [Call("look", {"what": "here"})]
    other = different if isinstance(different, list) else [different]
    model = ScriptedModel(*[same] * 9, other, *[same] * 9, "Done.")
    assert Agent(model, tools=[look, tick])("go").output == "Done."


def test_another_result_starts_the_count_anew() -> None:
    model = ScriptedModel(*[[Call("tick")]] * 30, "Done.")
    assert Agent(model, tools=[tick])("go").output == "Done."


def test_what_the_model_says_beside_its_calls_does_not_count_as_progress() -> None:
    turns = [[Say(f"Try {number}. "), Call("look")] for number in range(20)]
    result = Agent(ScriptedModel(*turns), tools=[look])("go")
    assert result.stop_reason == "limit"


async def test_a_prompt_in_between_starts_the_count_anew() -> None:
    model = ScriptedModel(*[[Call("look")]] * 18, "Done.")
    agent = Agent(model, tools=[look])
    run = agent.start("go")

    def on_event(_: object) -> None:
        if len(model.requests) == 9 and not sent:
            sent.append(run.enqueue("And now?"))

    sent: list[bool] = []
    run.tap(on_event)
    assert (await run).output == "Done."


# --- on_limit="answer" -----------------------------------------------------------------------------------------------


def check_answered(result: Any, model: ScriptedModel, text: str) -> None:
    assert result.stop_reason == "limit"
    assert result.text == text
    assert not faults(result.messages)
    assert result.receipt.cause.source == "budget"
    assert "  when      at the limit, after the last answer\n" in str(result.receipt)
    last = model.requests[-1]
    assert last.tools == ()
    assert "Give your final answer now" in (last.instructions or "")
    assert all(request.tools for request in model.requests[:-1])


def test_one_last_answer_without_tools_at_the_limit_of_turns() -> None:
    model = ScriptedModel([Call("tick")], [Call("tick")], "It ticked twice.")
    agent = Agent(model, tools=[tick], instructions="Be short.", limits=Limits(turns=2), on_limit="answer")
    result = agent("go")
    check_answered(result, model, "It ticked twice.")
    assert (model.requests[-1].instructions or "").startswith("Be short.\n\n")
    assert "turns 3 of 2 (reached)" in str(result.receipt)


def test_one_last_answer_at_the_limit_of_tool_calls() -> None:
    model = ScriptedModel([Call("tick")], [Call("tick"), Call("tick")], "Once.")
    result = Agent(model, tools=[tick])("go", limits=Limits(tool_calls=2), on_limit="answer")
    check_answered(result, model, "Once.")
    assert [call.outcome.value for call in result.receipt.calls] == ["completed", "never_started", "never_started"]


def test_one_last_answer_when_calls_are_repeated() -> None:
    model = ScriptedModel(*[[Call("look")]] * 10, "There is nothing.")
    result = Agent(model, tools=[look], on_limit="answer")("go")
    check_answered(result, model, "There is nothing.")


def test_one_last_answer_when_an_answer_with_tools_reaches_the_limit_of_tokens() -> None:
    model = ScriptedModel([Say("Let me see. "), Call("tick"), Used(10, 100)], "That is all.")
    result = Agent(model, tools=[tick], limits=Limits(output_tokens=50), on_limit="answer")("go")
    check_answered(result, model, "That is all.")
    assert result.receipt.calls[0].outcome.value == "never_started"


def test_an_answer_without_tools_that_reaches_the_limit_of_tokens_is_cut_and_is_the_last_one() -> None:
    model = ScriptedModel([Say("word " * 200, chunk=5)], "Never asked for.")
    result = Agent(model, tools=[tick], limits=Limits(output_tokens=50), on_limit="answer")("go")
    assert result.stop_reason == "limit"
    assert len(model.requests) == 1
    assert result.text.startswith("word word")


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("turns", Limits(turns=2)),
        ("tool_calls", Limits(tool_calls=1)),
        ("repeated_calls", Limits(repeated_calls=2)),
    ],
)
def test_a_limit_that_a_person_does_not_raise_is_shown_as_reached(name: str, limits: Limits) -> None:
    agent = Agent(ScriptedModel(then=[Call("look")]), tools=[look], limits=limits, on_limit="ask")
    (asked,) = agent("go").interrupts
    refused = agent.answer({asked.id: False})
    assert refused.stop_reason == "limit"
    (reached,) = [each for each in refused.receipt.limits if each.reached]
    assert (reached.name, int(reached.used) >= int(reached.allowed)) == (name, True)
    assert "(reached)" in str(refused.receipt)


class Recipe(BaseModel):
    name: str


@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(tool_calls=0)])
def test_the_last_answer_is_the_output_if_it_fits(limits: Limits) -> None:
    model = ScriptedModel([Call("tick")], '{"name": "Bread"}')
    result = Agent(model, tools=[tick], output_type=Recipe, limits=limits, on_limit="answer")("go")
    assert result.stop_reason == "limit"
    assert not result.finished
    assert result.output == Recipe(name="Bread")


@pytest.mark.parametrize("output_type", [None, str])
def test_without_an_output_type_the_last_answer_is_the_output(output_type: Any) -> None:
    model = ScriptedModel([Call("tick")], "It ticked once.")
    result = Agent(model, tools=[tick], output_type=output_type, limits=Limits(turns=1), on_limit="answer")("go")
    assert (result.stop_reason, result.finished, result.output) == ("limit", False, "It ticked once.")
    stopped = Agent(ScriptedModel([Call("tick")]), tools=[tick], limits=Limits(turns=1))("go")
    with pytest.raises(OutputMissing):
        _ = stopped.output


def test_a_last_answer_that_does_not_fit_is_no_output_and_is_not_asked_for_again() -> None:
    model = ScriptedModel([Call("tick")], "I could not finish.")
    result = Agent(model, tools=[tick], output_type=Recipe, limits=Limits(turns=1), on_limit="answer")("go")
    assert len(model.requests) == 2
    assert result.text == "I could not finish."
    with pytest.raises(OutputMissing):
        _ = result.output


@pytest.mark.parametrize("on_limit", ["stop", "answer"])
def test_the_receipt_of_an_answer_that_a_limit_has_cut(on_limit: Literal["stop", "answer"]) -> None:
    model = ScriptedModel([Say("word " * 400, chunk=5)], price=Price("1", "10"))
    result = Agent(model, limits=Limits(cost="0.002"), on_limit=on_limit)("go")
    assert "when      while the model was answering" in str(result.receipt)
    reached = next(each for each in result.receipt.limits if each.reached)
    assert Decimal(reached.used) > Decimal(reached.allowed)


def test_tools_that_the_last_answer_asks_for_all_the_same_are_not_run() -> None:
    model = ScriptedModel(then=[Say("Once more. "), Call("tick")])
    result = Agent(model, tools=[tick], limits=Limits(turns=2), on_limit="answer")("go")
    assert result.stop_reason == "limit"
    assert len(model.requests) == 3
    assert not faults(result.messages)
    assert [call.outcome.value for call in result.receipt.calls] == ["completed", "completed", "never_started"]


def test_the_agent_takes_the_next_prompt_after_a_last_answer() -> None:
    model = ScriptedModel([Call("tick")], "Last.", "Next.")
    agent = Agent(model, tools=[tick], limits=Limits(turns=1), on_limit="answer")
    assert agent("go").text == "Last."
    assert agent("and?").output == "Next."
    assert model.requests[-1].tools


def test_the_last_answer_of_a_child_is_the_result_of_its_tool() -> None:
    child = Agent(
        ScriptedModel([Call("tick")], "The child's word."), tools=[tick], name="child", limits=Limits(turns=1),
        on_limit="answer",
    )  # fmt: skip
    parent = Agent(ScriptedModel([Call("child", {"prompt": "go"})], "Done."), tools=[child])
    result = parent("go")
    assert result.output == "Done."
    assert "The child's word." in str(result.messages)
    assert result.receipt.calls[0].outcome.value == "completed"


def test_a_limit_of_the_parent_that_a_child_reaches_stops_the_child_and_lets_the_parent_answer() -> None:
    child = Agent(ScriptedModel(then=[Call("tick")]), tools=[tick], name="child")
    model = ScriptedModel([Call("child", {"prompt": "go"})], "The parent's last word.")
    result = Agent(model, tools=[child], limits=Limits(turns=4), on_limit="answer")("go")
    check_answered(result, model, "The parent's last word.")
    assert result.children[0].stop_reason in ("limit", "cancelled")
    assert result.children[0].receipt.cause is not None


# --- on_limit="ask" --------------------------------------------------------------------------------------------------


def only(agent: Agent) -> str:
    (interrupt,) = agent.interrupts
    return interrupt.id


async def test_a_person_is_asked_and_raises_the_limit() -> None:
    model = ScriptedModel(*[[Call("tick")]] * 5, "Five ticks.")
    agent = Agent(model, tools=[tick], limits=Limits(turns=2), on_limit="ask")
    run = agent.start("go")
    events: list[Any] = []
    run.tap(events.append)
    result = await run
    assert result.stop_reason == "interrupt"
    (interrupt,) = result.interrupts
    assert interrupt.kind == "limit"
    assert interrupt.reason == {
        "limit": "turns", "allowed": 2, "used": 2, "message": "The limit of 2 turns is reached",
    }  # fmt: skip
    assert [event.interrupt for event in events if isinstance(event, InterruptRaised)] == [interrupt]
    assert "turns 2 of 2 (reached)" in str(result.receipt)
    again = await agent.answer_async({interrupt.id: True})  # as much again: 4
    assert again.interrupts[0].reason["allowed"] == 4
    done = await agent.answer_async({only(agent): True})  # and again: 6
    assert done.output == "Five ticks."
    assert len(model.requests) == 6
    assert not faults(agent.messages)
    assert agent.state["ticks"] == 5


async def test_hooks_see_a_run_that_asks_about_its_limit() -> None:
    seen: list[Any] = []

    async def note(event: AfterRun | OnMessage) -> None:
        seen.append(event.result.stop_reason if isinstance(event, AfterRun) else type(event.message))

    agent = Agent(
        ScriptedModel([Call("tick")], then="Done."), tools=[tick], limits=Limits(turns=1), on_limit="ask", hooks=[note]
    )
    result = await agent.invoke_async("go")
    assert (result.stop_reason, result.error) == ("interrupt", None)
    assert seen == [UserMessage, AssistantMessage, ToolMessage, "interrupt"]


def test_a_number_says_how_much_more() -> None:
    model = ScriptedModel(*[[Call("tick")]] * 20, "Done.")
    agent = Agent(model, tools=[tick], limits=Limits(turns=3), on_limit="ask")
    agent("go")
    result = agent.answer({only(agent): 7})
    assert (result.interrupts[0].reason["allowed"], len(model.requests)) == (10, 10)


def test_limits_of_the_call_stay_when_it_goes_on() -> None:
    agent = busy()
    agent("go", limits=Limits(turns=2, tool_calls=50), on_limit="ask")
    result = agent.answer({only(agent): 3})
    assert result.interrupts[0].reason["allowed"] == 5
    assert [(limit.name, limit.allowed) for limit in result.receipt.limits] == [
        ("turns", "5"),
        ("repeated_calls", "10"),
        ("tool_calls", "50"),
    ]
    result = agent.answer({only(agent): 1}, limits=Limits(turns=8), on_limit="stop")
    words = "The limit of 8 turns is reached, with those of the earlier runs of the task"
    assert str(result.receipt.cause) == f"budget: {words}"


@pytest.mark.parametrize("no", [False, Deny("enough")])
def test_no_ends_the_run_and_keeps_everything(no: Any) -> None:
    agent = busy(limits=Limits(turns=2), on_limit="ask")
    asked = agent("go")
    result = agent.answer({only(agent): no})
    assert result.stop_reason == "limit"
    assert str(result.receipt.cause) == "budget: The limit of 2 turns is reached"
    assert result.messages == asked.messages
    assert agent.interrupts == ()
    assert not faults(agent.messages)


@pytest.mark.parametrize("nonsense", [0, -3, "many", 1.5, None, [], float("nan"), float("inf"), "1e1000"])
def test_nonsense_is_no_answer_and_changes_nothing(nonsense: Any) -> None:
    agent = busy(limits=Limits(turns=2), on_limit="ask")
    agent("go")
    asked = agent.interrupts
    with pytest.raises(InvalidAnswer, match="no answer"):
        agent.answer({only(agent): nonsense})
    assert agent.interrupts == asked


def test_calls_that_are_too_many_wait_and_run_when_the_limit_is_raised() -> None:
    model = ScriptedModel([Call("tick")], [Say("Two more: "), Call("tick"), Call("tick")], "Three.")
    agent = Agent(model, tools=[tick], limits=Limits(tool_calls=2), on_limit="ask")
    asked = agent("go")
    assert asked.interrupts[0].reason["limit"] == "tool_calls"
    assert agent.state["ticks"] == 1
    result = agent.answer({only(agent): Approve()})
    assert result.output == "Three."
    assert agent.state["ticks"] == 3
    assert len(model.requests) == 3


@pytest.mark.parametrize("prefill", [True, False])
def test_an_answer_that_was_cut_goes_on(prefill: bool) -> None:
    model = ScriptedModel([Say("word " * 100, chunk=5)], "and the rest.")
    model.supports_prefill = prefill  # type: ignore[attr-defined]
    agent = Agent(model, limits=Limits(output_tokens=50), on_limit="ask")
    asked = agent("go")
    assert asked.interrupts[0].reason["limit"] == "output_tokens"
    assert asked.text.startswith("word")
    result = agent.answer({only(agent): 1000})
    assert result.finished
    assert "and the rest." in result.text
    assert not faults(agent.messages)
    assert isinstance(model.requests[-1].messages[-1], AssistantMessage if prefill else UserMessage)


def test_what_was_used_before_still_counts_against_the_other_limits() -> None:
    price = Price(input=Decimal(0), output=Decimal(1_000_000))
    turns = [[Call("tick"), Used(0, 3)]] * 10
    agent = Agent(
        ScriptedModel(*turns, price=price), tools=[tick], limits=Limits(turns=2, cost="10"), on_limit="ask"
    )  # fmt: skip
    agent("go")
    result = agent.answer({only(agent): True})
    assert result.interrupts[0].reason["limit"] == "cost"
    result = agent.answer({only(agent): "5.5"})
    assert result.interrupts[0].reason["limit"] == "turns"


def test_repeated_calls_can_be_allowed() -> None:
    model = ScriptedModel(*[[Call("look")]] * 15, "Nothing came.")
    agent = Agent(model, tools=[look], on_limit="ask")
    assert agent("go").interrupts[0].reason["limit"] == "repeated_calls"
    assert agent.answer({only(agent): True}).output == "Nothing came."


def test_a_plain_prompt_drops_the_question() -> None:
    model = ScriptedModel([Call("tick")], "Fine.")
    agent = Agent(model, tools=[tick], limits=Limits(turns=1), on_limit="ask")
    agent("go")
    assert agent("never mind").output == "Fine."
    assert not faults(agent.messages)


def test_it_can_be_answered_after_a_restart() -> None:
    model = ScriptedModel([Call("tick")], [Call("tick")])
    first = Agent(model, tools=[tick], limits=Limits(turns=2), on_limit="ask")
    first("go")
    stored = msgspec.json.encode(first.conversation.snapshot())
    conversation = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
    again = ScriptedModel([Call("tick")], [Call("tick")], "Done.")
    second = Agent(again, tools=[tick], limits=Limits(turns=2), on_limit="ask", conversation=conversation)
    result = second.answer({only(second): True})
    assert result.interrupts[0].reason["allowed"] == 4
    assert second.answer({only(second): 1}).output == "Done."


@pytest.mark.parametrize(
    ("limits", "answer", "ticks"),
    [
        (Limits(tool_calls=2), [Say("Two: "), Call("tick"), Call("tick")], 3),
        (Limits(turns=1), [], 1),
        (Limits(output_tokens=50), [Say("word " * 200, chunk=5)], 1),
    ],
    ids=["tool_calls", "turns", "output_tokens"],
)
async def test_it_can_be_answered_in_another_process_with_a_session(
    tmp_path: Path, limits: Limits, answer: list[Any], ticks: int
) -> None:
    path = tmp_path / "store.db"
    first = Agent(ScriptedModel([Call("tick")], answer), tools=[tick], limits=limits, on_limit="ask", store=path)
    asked = await first.invoke_async("go", session="one")
    second = Agent(ScriptedModel("The end."), tools=[tick])
    session = Session("one", path)
    await session.load()
    assert session.interrupts == asked.interrupts
    assert not faults(session.sealed())
    result = await second.answer_async({asked.interrupts[0].id: 1000}, conversation=session)
    assert result.output.endswith("The end.")
    assert session.state["ticks"] == ticks
    assert not faults(result.messages)


def test_a_child_asks_through_its_parent() -> None:
    child = Agent(
        ScriptedModel([Call("tick")], [Call("tick")], "Two."), tools=[tick], name="child", limits=Limits(turns=1),
        on_limit="ask",
    )  # fmt: skip
    parent = Agent(ScriptedModel([Call("child", {"prompt": "go"})], "Done."), tools=[child])
    asked = parent("go")
    (interrupt,) = asked.interrupts
    assert interrupt.kind == "limit"
    result = parent.answer({interrupt.id: 5})
    assert result.output == "Done."
    assert "Two." in str(result.messages)


def test_a_limit_that_a_child_reaches_for_its_parent_is_asked_by_the_parent() -> None:
    child = Agent(ScriptedModel(then=[Call("tick")]), tools=[tick], name="child")
    parent = Agent(
        ScriptedModel([Call("child", {"prompt": "go"})], "Done."), tools=[child], limits=Limits(turns=4),
        on_limit="ask",
    )  # fmt: skip
    asked = parent("go")
    assert asked.interrupts[0].reason["limit"] == "turns"
    assert parent.answer({only(parent): True}).output == "Done."


# --- Receipts --------------------------------------------------------------------------------------------------------


def test_equal_calls_in_a_row_share_a_line_of_the_receipt() -> None:
    calls = [*[Call("tick")] * 25, Call("look"), Call("tick")]
    receipt = str(Agent(ScriptedModel(calls, "Done."), tools=[tick, look])("go").receipt)
    assert "tools     tick x25: completed (" in receipt
    assert "\n            look: completed (" in receipt
    assert "\n            tick: completed (" in receipt
    assert "limits" not in receipt


def test_calls_that_ended_in_another_way_have_a_line_of_their_own() -> None:
    @tool
    async def fails(number: int) -> str:
        if number > 2:
            raise ValueError("no")
        return "yes"

    calls = [Call("fails", {"number": number}) for number in range(5)]
    receipt = str(Agent(ScriptedModel(calls, "Done."), tools=[fails])("go").receipt)
    assert "fails x3: completed (" in receipt
    assert "fails x2: completed with an error (" in receipt


def test_the_receipt_has_the_limits_and_what_was_used() -> None:
    result = busy()("go", limits=Limits(turns=3, tool_calls=9))
    assert [(limit.name, limit.allowed, limit.used, limit.reached) for limit in result.receipt.limits] == [
        ("turns", "3", "3", True),
        ("repeated_calls", "10", "0", False),
        ("tool_calls", "9", "3", False),
    ]
    assert "limits    turns 3 of 3 (reached), repeated calls 10, tool calls 9" in str(result.receipt)
