"""A run of 2,000 turns and a conversation of 100,000 messages behave."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from quiesce import Agent, Conversation, Limits, tool
from quiesce.conversation.validity import faults
from quiesce.events import TextDelta, TurnStarted
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

pytestmark = [pytest.mark.promise("P2"), pytest.mark.proof]

TURNS = 2_000
MESSAGES = 100_000


@tool
async def nothing(number: int) -> str:
    """Do nothing."""
    return f"Nothing was done, {number} times."


async def test_a_run_of_2000_turns():
    """The last quarter of the turns takes no more CPU time than three times the first: the work is not quadratic."""
    script = [[Call("nothing", {"number": number})] for number in range(TURNS - 1)]
    marks: list[float] = []
    agent = Agent(ScriptedModel(*script, [Say("Done.")]), tools=[nothing], limits=Limits(turns=TURNS))
    run = agent.start("Go.")
    async for event in run:
        if isinstance(event, TurnStarted):
            marks.append(time.process_time())
    result = await run
    assert result.text == "Done."
    assert len(result.messages) == 2 * TURNS
    assert faults(result.messages) == ()
    assert len(marks) == TURNS
    quarters = [marks[number] for number in range(0, TURNS, TURNS // 4)] + [time.process_time()]
    first, *_, last = (end - begin for begin, end in pairwise(quarters))
    assert last < 3 * first


async def test_a_stop_in_a_conversation_of_100_000_messages():
    """The next prompt is answered, a stop keeps what was said, and neither takes long."""
    said = [UserMessage((Text("Hello."),)), AssistantMessage((Text("Hello yourself."),))] * (MESSAGES // 2)
    conversation = Conversation(said)
    agent = Agent(ScriptedModel("First.", [Say("Well, "), Stall()], "Last."))
    began = time.process_time()
    assert (await agent.invoke_async("Go on.", conversation=conversation)).text == "First."
    run = agent.start("Go on.", conversation=conversation)
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel("enough")
    receipt = await run.stopped()
    assert receipt.stop_reason == "cancelled"
    assert (await agent.invoke_async("Go on.", conversation=conversation)).text == "Last."
    assert time.process_time() - began < 10
    assert len(conversation.messages) == MESSAGES + 6
    assert conversation.messages[MESSAGES + 3].text.startswith("Well, ")
    assert faults(conversation.messages) == ()
