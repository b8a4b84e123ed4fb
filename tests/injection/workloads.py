"""The workloads that are stopped everywhere: small agents, each with another way to be in the middle of something."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from quiesce import Agent, CancellationToken, Conversation, Limits, Retry, Summarise, Text, Trim, UserMessage, tool
from quiesce.errors import ConnectionFailed, RateLimited, ServerError
from quiesce.hooks import (
    AfterModelCall,
    AfterRun,
    AfterToolCall,
    BeforeModelCall,
    BeforeRun,
    BeforeToolCall,
    OnMessage,
    OnStop,
)
from quiesce.messages import AssistantMessage, Message
from quiesce.testing import (
    Call,
    Drop,
    End,
    Fail,
    Gate,
    Harness,
    Interleave,
    Pause,
    Say,
    ScriptedModel,
    Stall,
    Think,
    Used,
)

from . import saved_workloads
from .registry import Workloads
from .tools import (
    blocking,
    counting,
    failing,
    finishes_when_stopped,
    gives_up,
    lengthy,
    may_be_left,
    must_finish,
    quick,
    slow,
    slow_to_stop,
    watching,
)

WORKLOADS = Workloads(saved_workloads.WORKLOADS)
workload = WORKLOADS.add


# --- Workloads -------------------------------------------------------------------------------------------------------


@workload
async def text(harness: Harness) -> None:
    await harness.invoke(
        Agent(ScriptedModel(Say("Once upon a time there was a stop.", pause=0.1), then="Yes.")), "Tell"
    )


@workload
async def text_without_pauses(harness: Harness) -> None:
    await harness.invoke(Agent(ScriptedModel(Say("word " * 60, chunk=1), then="Yes.")), "Tell")


@workload
async def stream(harness: Harness) -> None:
    await harness.read(Agent(ScriptedModel(Say("Read me while I speak.", chunk=4, pause=0.1), then="Yes.")), "Tell")


@workload
async def reasoning(harness: Harness) -> None:
    answer = [Think("Let me think about it.", signature="sig", pause=0.1), Say("I thought.", pause=0.1)]
    await harness.invoke(Agent(ScriptedModel(answer, then="Yes.")), "Think")


@workload
async def answer_that_the_provider_pauses(harness: Harness) -> None:
    first = [Say("One half, ", pause=0.1), Used(10, 5), End("pause")]
    model = ScriptedModel(first, Say("and the other.", pause=0.1), then="Yes.", supports_prefill=True)
    await harness.invoke(Agent(model), "Tell")


@workload
async def one_tool(harness: Harness) -> None:
    model = ScriptedModel([Say("Look: ", pause=0.1), Call("slow", pause=0.1), Used(10, 5)], "It slept.", then="Yes.")
    await harness.invoke(Agent(model, tools=[slow]), "Go")


@workload
async def three_parallel_tools(harness: Harness) -> None:
    calls = [Call("quick"), Call("slow", {"seconds": 2}), Call("slow", {"seconds": 7})]
    model = ScriptedModel([Say("All at once."), *calls], "All done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow]), "Go")


@workload
async def sequential_tools(harness: Harness) -> None:
    calls = [Call("slow", {"seconds": 1}), Call("quick"), Call("slow", {"seconds": 2})]
    model = ScriptedModel(calls, "One by one.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow], tool_execution="sequential"), "Go")


@workload
async def sync_tools(harness: Harness) -> None:
    model = ScriptedModel([Call("blocking"), Call("blocking", {"word": "again"})], "Both.", then="Yes.")
    await harness.invoke(Agent(model, tools=[blocking]), "Go")


@workload
async def sync_tool_that_hangs(harness: Harness) -> None:
    gate = Gate()
    harness.on_close(gate.open)

    @tool
    def hang() -> str:
        gate.wait()
        return "free at last"

    def open_later() -> None:
        asyncio.get_running_loop().call_later(30, gate.open)

    open_later()
    model = ScriptedModel([Say("Hold on."), Call("hang"), Call("quick")], "It came back.", then="Yes.")
    await harness.invoke(Agent(model, tools=[hang, quick]), "Go")


@workload
async def retries(harness: Harness) -> None:
    model = ScriptedModel(
        Fail(RateLimited("slow down", retry_after=7)),
        [Pause(1), Fail(ServerError("oops"))],
        Drop(),
        [Pause(1), Fail(ConnectionFailed("reset"))],
        Say("At last.", pause=0.1),
        then="Yes.",
    )
    await harness.invoke(Agent(model, retry=Retry(attempts=5, jitter=0)), "Go")


class Weather(BaseModel):
    city: str
    degrees: int


@workload
async def structured_output(harness: Harness) -> None:
    model = ScriptedModel(
        Say("It is warm.", pause=0.1),
        Say('{"city": "Rome"}', pause=0.1),
        Say('{"city": "Rome", "degrees": 30}', pause=0.1),
        then='{"city": "Oslo", "degrees": 3}',
    )
    await harness.invoke(Agent(model, output_type=Weather), "Weather?")


@workload
async def nested_tokens(harness: Harness) -> None:
    model = ScriptedModel([Call("watching"), Call("watching")], "Watched.", then="Yes.")
    await harness.invoke(Agent(model, tools=[watching]), "Go")


@workload
async def hooks_that_wait(harness: Harness) -> None:
    harness.extra_time = 5.0

    async def wait(
        event: BeforeRun
        | AfterRun
        | BeforeModelCall
        | AfterModelCall
        | BeforeToolCall
        | AfterToolCall
        | OnMessage
        | OnStop,
    ) -> None:
        await asyncio.sleep(0.2)

    model = ScriptedModel([Say("Hm. "), Call("quick")], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick], hooks=[wait]), "Go")


@workload
async def hooks_that_fail(harness: Harness) -> None:
    async def fail(event: BeforeRun | AfterRun | BeforeToolCall | AfterToolCall | OnMessage | OnStop) -> None:
        await asyncio.sleep(0)
        raise ValueError("a bad hook")

    model = ScriptedModel([Say("Hm. "), Call("quick")], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick], hooks=[fail]), "Go")


@workload
async def hook_that_cancels(harness: Harness) -> None:
    harness.expect_cause("hook")
    seen: list[str] = []

    async def cancel(event: BeforeToolCall) -> None:
        await asyncio.sleep(0.1)
        seen.append(event.call.id)
        if len(seen) == 2:
            event.cancel("two are enough")

    calls = [Call("slow", {"seconds": 1}), Call("quick"), Call("slow", {"seconds": 2})]
    model = ScriptedModel([Say("Three. "), *calls], then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow], tool_execution="sequential", hooks=[cancel]), "Go")


@workload
async def hook_that_replaces(harness: Harness) -> None:
    async def replace(event: BeforeToolCall | AfterToolCall) -> None:
        await asyncio.sleep(0.1)
        if isinstance(event, BeforeToolCall) and event.call.name == "slow":
            event.replace("not today")

    model = ScriptedModel([Call("slow"), Call("quick")], "Replaced.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow], hooks=[replace]), "Go")


@workload
async def two_runs_of_one_agent(harness: Harness) -> None:
    answers = [[Say("First. ", pause=0.1), Call("slow", {"seconds": 1})] for _ in range(2)]
    agent = Agent(ScriptedModel(*answers, then=Say("Yes.", pause=0.1)), tools=[slow])
    harness.start(agent, "One", target=True)
    harness.start(agent, "Two", target=False, conversation=agent.conversation.branch())


@workload
async def continue_after_a_stop(harness: Harness) -> None:
    model = ScriptedModel(
        [Say("I was going to"), Call("slow")], [Say("Go on. ", pause=0.1), Call("quick")], "Done.", then="Yes."
    )
    agent = Agent(model, tools=[slow, quick])
    first = harness.start(agent, "Go", target=False)
    asyncio.get_running_loop().call_later(1, first.cancel, "first stop")
    await first
    await harness.invoke(agent, "Go on", target=True)


@workload
async def second_stop_while_settling(harness: Harness) -> None:
    model = ScriptedModel([Say("Careful. "), Call("slow_to_stop"), Call("slow_to_stop")], "Done.", then="Yes.")
    run = harness.start(Agent(model, tools=[slow_to_stop]), "Go")
    harness.expect_cause("user")
    asyncio.get_running_loop().call_later(2, run.cancel, "the first stop")
    await run


@workload
async def tools_that_must_finish(harness: Harness) -> None:
    model = ScriptedModel([Call("must_finish"), Call("slow", {"seconds": 1})], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[must_finish, slow]), "Go")


@workload
async def tools_that_may_be_left(harness: Harness) -> None:
    model = ScriptedModel([Call("may_be_left"), Call("quick")], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[may_be_left, quick]), "Go")


@workload
async def tools_that_finish_when_stopped(harness: Harness) -> None:
    model = ScriptedModel([Call("finishes_when_stopped"), Call("slow")], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[finishes_when_stopped, slow]), "Go")


@workload
async def tool_with_progress(harness: Harness) -> None:
    model = ScriptedModel([Call("counting")], "Counted.", then="Yes.")
    await harness.read(Agent(model, tools=[counting]), "Go")


@workload
async def interleaved_calls(harness: Harness) -> None:
    steps = (Say("both ", chunk=2), Call("quick", {"word": "a long argument"}), Call("slow", {"seconds": 1}))
    model = ScriptedModel([Say("I want ", pause=0.1), Interleave(steps), Pause(0.1)], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, slow]), "Go")


@workload
async def torn_arguments(harness: Harness) -> None:
    call = Call("quick", {"word": "so many letters that it takes a while"}, chunk=4, pause=0.1)
    model = ScriptedModel([Say("Asking. "), Call("quick", pause=0.1), call, Pause(0.1)], "Done.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick]), "Go")


@workload
async def tool_that_cancels(harness: Harness) -> None:
    harness.expect_cause("tool")
    model = ScriptedModel([Call("gives_up"), Call("slow")], then="Yes.")
    await harness.invoke(Agent(model, tools=[gives_up, slow]), "Go")


@workload
async def bad_calls(harness: Harness) -> None:
    calls = [Call("nobody"), Call("quick", "not json"), Call("quick", {"other": 1}), Call("failing")]
    model = ScriptedModel([Say("Trying. ", pause=0.1), *calls], "I see.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick, failing]), "Go")


@workload
async def many_turns(harness: Harness) -> None:
    turns = [[Say(f"Turn {n}. ", pause=0.1), Call("quick", {"word": str(n)}), Used(10 * n, 5)] for n in range(1, 6)]
    await harness.invoke(Agent(ScriptedModel(*turns, "Five turns.", then="Yes."), tools=[quick]), "Go")


@workload
async def turn_limit(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel([Call("quick")], [Call("quick")], then="Yes.")
    await harness.invoke(Agent(model, tools=[quick]), "Go", limits=Limits(turns=2))


@workload
async def token_limit(harness: Harness) -> None:
    harness.expect_cause("budget")
    model = ScriptedModel(Say("so many words that the budget is gone before the end", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model), "Go", limits=Limits(output_tokens=8))


@workload
async def deadline(harness: Harness) -> None:
    harness.expect_cause("deadline")
    model = ScriptedModel(Say("too slow for the deadline that was set", pause=0.5), then="Yes.")
    await harness.invoke(Agent(model), "Go", timeout=2)


@workload
async def stall(harness: Harness) -> None:
    harness.expect_cause("deadline")
    await harness.invoke(Agent(ScriptedModel([Say("And then"), Stall()], then="Yes."), timeout=60), "Go")


@workload
async def token_tree(harness: Harness) -> None:
    grandchild = harness.parent.child().child()
    agent = Agent(ScriptedModel([Say("Deep. ", pause=0.1), Call("slow")], "Done.", then="Yes."), tools=[slow])
    both = CancellationToken.any(grandchild, CancellationToken())
    await harness.invoke(agent, "Go", under=both)


# --- Long conversations ----------------------------------------------------------------------------------------------


def earlier(exchanges: int) -> list[Message]:
    said: list[Message] = []
    for number in range(exchanges):
        said += [UserMessage((Text(f"Question {number}?"),)), AssistantMessage((Text(f"Answer {number}. " * 5),))]
    return said


@workload
async def trimmed_context(harness: Harness) -> None:
    model = ScriptedModel([Say("Look: ", pause=0.1), Call("quick")], Say("Short.", pause=0.1), then="Yes.")
    await harness.invoke(
        Agent(model, tools=[quick], conversation=Conversation(tuple(earlier(6))), context=Trim(messages=4)), "Go"
    )


@workload
async def summarised_inside_one_prompt(harness: Harness) -> None:
    calls = [[Say("Looking at what there is. " * 4), Call("quick")] for _ in range(3)]
    writer = ScriptedModel(then=Say("In short: looked.", chunk=6, pause=0.1))
    model = ScriptedModel(*calls, Say("Done.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[quick], context=Summarise(120, keep=60, model=writer)), "Go")


@workload
async def long_result(harness: Harness) -> None:
    reads = [Call("read_result", {"handle": "c1", "offset": 100})]
    model = ScriptedModel([Call("lengthy", id="c1")], reads, Say("Read.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[lengthy], max_result=1000), "Go")


@workload
async def summarised_context(harness: Harness) -> None:
    model = ScriptedModel(
        [Say("In short: questions.", chunk=4, pause=0.1), Used(50, 5)],
        [Say("Look: ", pause=0.1), Call("quick")],
        Say("Done.", pause=0.1),
        then="Yes.",
    )
    await harness.invoke(
        Agent(model, tools=[quick], conversation=Conversation(tuple(earlier(6))), context=Summarise(100, keep=40)), "Go"
    )
