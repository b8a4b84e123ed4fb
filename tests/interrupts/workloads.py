"""Workloads that ask, are answered, are steered, pause and go on: each stopped at every point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from quiesce import Agent, Approve, Conversation, ConversationState, Deny, Run
from quiesce.errors import ConversationBusy, InvalidAnswer, UnknownInterrupt
from quiesce.hooks import BeforeApproval, BeforeToolCall, OnMessage
from quiesce.testing import Call, Harness, Pause, Say, ScriptedModel
from tests.injection.registry import Workloads
from tests.injection.tools import quick, slow, slow_to_stop

from . import neighbour_workloads
from .tools import ask, ask_in_thread, lend, may_be_left, must_finish, pay, tip

WORKLOADS = Workloads(neighbour_workloads.WORKLOADS)
workload = WORKLOADS.add


def later(seconds: float, function: Callable[..., object], *args: object) -> None:
    asyncio.get_running_loop().call_later(seconds, function, *args)


async def asked(agent: Agent, harness: Harness) -> None:
    """Bring the agent to where a person is asked."""
    assert (await harness.invoke(agent, "Go", target=False)).stop_reason == "interrupt"


# --- Asking ----------------------------------------------------------------------------------------------------------


def mixed_agent() -> Agent:
    calls = [Call("pay"), Call("quick"), Call("tip", {"amount": 5}), Call("tip", {"amount": 50}), Call("ask")]
    model = ScriptedModel([Say("Well: ", pause=0.1), *calls], Say("All done.", pause=0.1), then="Yes.")
    return Agent(model, tools=[pay, tip, quick, ask])


@workload
async def asking(harness: Harness) -> None:
    await harness.invoke(mixed_agent(), "Go")


@workload
async def approved_by_a_hook(harness: Harness) -> None:
    harness.extra_time = 5.0
    agent = mixed_agent()

    @agent.hook()
    async def approve(event: BeforeApproval) -> None:
        await asyncio.sleep(0.1)
        if event.interrupt.tool_name == "pay":
            event.approve("ada")

    await harness.invoke(agent, "Go")


@workload
async def asking_from_a_thread(harness: Harness) -> None:
    model = ScriptedModel([Call("ask_in_thread"), Call("slow", {"seconds": 1})], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[ask_in_thread, slow]), "Go")


@workload
async def asking_in_a_hook(harness: Harness) -> None:
    harness.extra_time = 5.0

    async def check(event: BeforeToolCall | OnMessage) -> None:
        await asyncio.sleep(0.1)
        if isinstance(event, BeforeToolCall) and event.call.name == "slow":
            event.interrupt("may it?", reason="slow")

    model = ScriptedModel([Call("quick"), Call("slow", {"seconds": 1})], "Done.", then="Yes.")
    agent = Agent(model, tools=[quick, slow], hooks=[check])
    await asked(agent, harness)
    await harness.start_answer(agent, {"call_2:may it?": "yes"}, target=True)


@workload
async def all_answered(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    answers = {"call_5:name": "Ada", "call_1:approval": True, "call_4:approval": Approve(arguments={"amount": 11})}
    await harness.start_answer(agent, answers, target=True)


@workload
async def some_answered(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    await harness.start_answer(agent, {"call_4:approval": True}, target=True)


@workload
async def answered_bit_by_bit(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    for answers in ({"call_5:name": "Ada"}, {"call_4:approval": Deny("too much")}, {"call_5:sure": False}):
        await harness.start_answer(agent, answers, target=False)
    await harness.start_answer(agent, {"call_1:approval": True}, target=True)


@workload
async def one_of_two_answered_while_the_other_runs(harness: Harness) -> None:
    model = ScriptedModel([Call("pay"), Call("pay", {"amount": 2}), Call("quick")], "Done.", then="Yes.")
    agent = Agent(model, tools=[pay, quick])
    await asked(agent, harness)
    run = harness.start_answer(agent, {"call_1:approval": True}, target=True)
    later(0.2, answer_if_asked, agent, {"call_2:approval": True})
    await run


@workload
async def answered_in_the_first_run(harness: Harness) -> None:
    """An approval is given, and another call denied, while a third tool of the same turn goes on."""
    calls = [Call("pay"), Call("pay", {"amount": 2}), Call("slow", {"seconds": 1})]
    agent = Agent(ScriptedModel(calls, "Done.", then="Yes."), tools=[pay, slow])
    run = harness.start(agent, "Go")
    later(0.3, answer_if_asked, agent, {"call_2:approval": Deny("no")})
    later(0.7, answer_if_asked, agent, {"call_1:approval": True})
    await run


def answer_if_asked(agent: Agent, answers: dict[str, object]) -> None:
    """Answer, unless a stop has withdrawn the question."""
    with suppress(UnknownInterrupt, ConversationBusy):
        agent.start_answer(answers)


@workload
async def edited_arguments(harness: Harness) -> None:
    model = ScriptedModel([Call("pay", {"amount": "3"}), Call("lend", {"amount": "50"})], "Done.", then="Yes.")
    agent = Agent(model, tools=[pay, lend])
    await asked(agent, harness)
    answers = {
        "call_1:approval": Approve(arguments={"amount": "2"}),
        "call_2:approval": Approve(arguments={"amount": 5}),
    }
    await harness.start_answer(agent, answers, target=True)


@workload
async def wrongly_edited_arguments(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    with suppress(InvalidAnswer):
        harness.start_answer(agent, {"call_1:approval": Approve(arguments={"amount": "much"})}, target=False)
    await harness.start_answer(agent, {"call_1:approval": Approve(arguments={"amount": 2})}, target=True)


@workload
async def a_predicate_that_waits(harness: Harness) -> None:
    calls = [Call("lend", {"amount": 5}), Call("lend", {"amount": 50}), Call("quick")]
    agent = Agent(ScriptedModel(calls, "Done.", then="Yes."), tools=[lend, quick])
    await harness.invoke(agent, "Go")


@workload
async def all_denied(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    await harness.start_answer(agent, {each.id: Deny("no") for each in agent.interrupts}, target=True)


@workload
async def asked_again_in_the_next_turn(harness: Harness) -> None:
    model = ScriptedModel([Call("pay")], [Say("Again. "), Call("pay", {"amount": 2})], "Done.", then="Yes.")
    agent = Agent(model, tools=[pay])
    await asked(agent, harness)
    await harness.start_answer(agent, {"call_1:approval": True}, target=True)


@workload
async def one_by_one(harness: Harness) -> None:
    calls = [Call("quick"), Call("pay"), Call("slow", {"seconds": 1}), Call("pay", {"amount": 2})]
    model = ScriptedModel(calls, "Done.", then="Yes.")
    agent = Agent(model, tools=[pay, quick, slow], tool_execution="sequential")
    await asked(agent, harness)
    await harness.start_answer(agent, {"call_2:approval": True}, target=True)


@workload
async def after_a_restart(harness: Harness) -> None:
    first = mixed_agent()
    await asked(first, harness)
    stored = msgspec.json.encode(first.conversation.snapshot())
    conversation = Conversation.restore(msgspec.json.decode(stored, type=ConversationState))
    model = ScriptedModel(Say("I am back.", pause=0.1), then="Yes.")
    agent = Agent(model, tools=[pay, tip, quick, ask], conversation=conversation)
    answers = {"call_5:name": Deny(), "call_1:approval": True, "call_4:approval": False}
    await harness.start_answer(agent, answers, target=True)


@workload
async def plain_prompt_instead_of_an_answer(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    await harness.invoke(agent, "Forget it", target=True)


@workload
async def asking_below(harness: Harness) -> None:
    """A child run asks; the parent is resumed and stopped."""
    inner = Agent(ScriptedModel([Call("pay"), Call("quick")], then="Inside done."), tools=[pay, quick], name="inner")
    model = ScriptedModel([Call("inner", {"prompt": "pay"}), Call("quick")], "Done.", then="Yes.")
    agent = Agent(model, tools=[inner, quick])
    await asked(agent, harness)
    await harness.start_answer(agent, {"call_1:call_1:approval": True}, target=True)


# --- Steering --------------------------------------------------------------------------------------------------------


def steered(agent: Agent, harness: Harness, *times: float, mode: str = "now") -> Run:
    run = harness.start(agent, "Go")
    for number, seconds in enumerate(times):
        later(seconds, lambda n=number: run.steer(f"No, {n}!", mode=mode))
    return run


@workload
async def steered_while_speaking(harness: Harness) -> None:
    model = ScriptedModel(
        Say("One two three four five six.", chunk=4, pause=0.1), Say("As you like.", pause=0.1), then="Y."
    )
    await steered(Agent(model), harness, 0.35)


@workload
async def steered_while_tools_run(harness: Harness) -> None:
    calls = [Call("slow"), Call("must_finish"), Call("slow_to_stop"), Call("quick"), Call("may_be_left")]
    model = ScriptedModel([Say("Working. "), *calls], Say("As you like.", pause=0.1), then="Yes.")
    tools = [slow, must_finish, slow_to_stop, quick, may_be_left]
    await steered(Agent(model, tools=tools), harness, 1)


@workload
async def steered_after_the_tools(harness: Harness) -> None:
    model = ScriptedModel(
        [Say("Working. "), Call("slow", {"seconds": 2}), Call("quick")], Say("As you like.", pause=0.1), then="Yes."
    )
    await steered(Agent(model, tools=[slow, quick], tool_execution="sequential"), harness, 1, mode="after_tools")


@workload
async def steered_at_the_end(harness: Harness) -> None:
    model = ScriptedModel([Say("Short."), Pause(1)], Say("As you like.", pause=0.1), then="Yes.")
    await steered(Agent(model), harness, 1, mode="after_turn")


@workload
async def steered_twice(harness: Harness) -> None:
    model = ScriptedModel(
        Say("One two three four.", chunk=4, pause=0.1),
        [Say("All right. ", pause=0.1), Call("slow")],
        Say("As you like.", pause=0.1),
        then="Yes.",
    )
    await steered(Agent(model, tools=[slow]), harness, 0.25, 1.5, 1.5)


@workload
async def steered_before_anything(harness: Harness) -> None:
    harness.extra_time = 5.0

    async def wait(event: OnMessage) -> None:
        await asyncio.sleep(0.1)

    model = ScriptedModel(Say("As you like.", pause=0.1), then="Yes.")
    run = harness.start(Agent(model, hooks=[wait]), "Go")
    run.steer("Wait, no!")
    await run


@workload
async def steered_in_a_resumed_run(harness: Harness) -> None:
    agent = mixed_agent()
    await asked(agent, harness)
    run = harness.start_answer(agent, {"call_1:approval": True, "call_5:name": "Ada"}, target=True)
    later(0.15, run.steer, "Do not pay!")
    await run


@workload
async def queued_words(harness: Harness) -> None:
    model = ScriptedModel(
        [Say("Working. ", pause=0.1), Call("slow", {"seconds": 1})], Say("First.", pause=0.1), "Second.", then="Yes."
    )
    run = harness.start(Agent(model, tools=[slow]), "Go")
    later(0.5, run.enqueue, "And this.")
    later(0.6, run.enqueue, "And that.")
    later(1.25, run.enqueue, "And then this.")
    await run


# --- Pausing ---------------------------------------------------------------------------------------------------------


@workload
async def paused(harness: Harness) -> None:
    model = ScriptedModel(
        [Say("Working. ", pause=0.1), Call("slow", {"seconds": 1})], Say("Done.", pause=0.1), then="Y."
    )
    run = harness.start(Agent(model, tools=[slow]), "Go")
    run.pause()
    later(1, run.resume)
    later(1.05, run.pause)
    later(5, run.resume)
    later(5.5, run.pause)
    later(9, run.resume)
    await run


@workload
async def steered_while_paused(harness: Harness) -> None:
    model = ScriptedModel([Say("Working. "), Call("slow")], Say("As you like.", pause=0.1), then="Yes.")
    run = harness.start(Agent(model, tools=[slow]), "Go")
    later(0, run.pause)
    later(2, run.steer, "Not that!")
    later(3, run.resume)
    await run


# --- Going on --------------------------------------------------------------------------------------------------------


async def cut(agent: Agent, harness: Harness, seconds: float) -> None:
    """Stop the agent after a while."""
    run = harness.start(agent, "Go", target=False)
    later(seconds, run.cancel)
    assert (await run).stop_reason == "cancelled"


def talking_agent(*, supports_prefill: bool) -> Agent:
    answers = [Say("One two three four", chunk=4, pause=0.1), Say(" and five and six.", chunk=4, pause=0.1)]
    return Agent(ScriptedModel(*answers, then="Yes.", supports_prefill=supports_prefill))


@workload
async def prefilled(harness: Harness) -> None:
    agent = talking_agent(supports_prefill=True)
    await cut(agent, harness, 0.35)
    await harness.start_continue(agent, target=True)


@workload
async def prefilled_and_steered(harness: Harness) -> None:
    agent = talking_agent(supports_prefill=True)
    await cut(agent, harness, 0.35)
    run = harness.start_continue(agent, target=True)
    later(0.25, run.steer, "Enough.")
    await run


@workload
async def prefilled_then_tools(harness: Harness) -> None:
    model = ScriptedModel(
        Say("Let me", pause=0.1),
        [Say(" pay.", pause=0.1), Call("pay"), Call("quick")],
        "Done.",
        then="Yes.",
        supports_prefill=True,
    )
    model_agent = Agent(model, tools=[pay, quick])
    await cut(model_agent, harness, 0.1)
    await harness.start_continue(model_agent, target=True)


@workload
async def asked_to_go_on(harness: Harness) -> None:
    agent = talking_agent(supports_prefill=False)
    await cut(agent, harness, 0.35)
    await harness.start_continue(agent, target=True)


@workload
async def cut_in_its_tools_and_continued(harness: Harness) -> None:
    model = ScriptedModel([Say("Look. "), Call("slow"), Call("quick")], Say("So be it.", pause=0.1), then="Yes.")
    agent = Agent(model, tools=[slow, quick])
    await cut(agent, harness, 1)
    await harness.start_continue(agent, target=True)


# --- A second prompt -------------------------------------------------------------------------------------------------


def busy_agent() -> Agent:
    return Agent(ScriptedModel(then=Say("The same to everybody.", chunk=4, pause=0.2)))


@workload
async def a_queued_run_is_stopped(harness: Harness) -> None:
    agent = busy_agent()
    first = harness.start(agent, "One", target=False)
    second = harness.start(agent, "Two", target=True, on_busy="queue")
    third = harness.start(agent, "Three", target=False, on_busy="queue")
    for run in (first, second, third):
        await run


@workload
async def the_run_before_queued_ones_is_stopped(harness: Harness) -> None:
    agent = busy_agent()
    runs = [harness.start(agent, "One", target=True)]
    runs += [harness.start(agent, each, target=False, on_busy="queue") for each in ("Two", "Three")]
    for run in runs:
        await run


@workload
async def a_newer_prompt_wins(harness: Harness) -> None:
    agent = busy_agent()
    harness.expect_cause("user")
    run = harness.start(agent, "One", target=True)
    await asyncio.sleep(0.5)
    await harness.invoke(agent, "Two", target=False, on_busy="cancel_previous")
    await run.stopped()
