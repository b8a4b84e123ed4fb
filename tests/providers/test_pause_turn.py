"""Anthropic's `pause_turn`: the run goes on by itself, with everything that came, within bounds, and can be stopped.

https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools (the server-side loop and `pause_turn`)
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent, Limits, MessageAdded
from quiesce.conversation.validity import faults
from quiesce.events import Event
from quiesce.messages import AssistantMessage, ProviderPart

from .recordings import ANSWER, ANTHROPIC
from .recordings.endings import ANTHROPIC_ENDINGS
from .test_endings import holds
from .wire import Play, chunk, head, wire

pytestmark = pytest.mark.promise("P3", "P6")
PAUSED = next(each for each in ANTHROPIC_ENDINGS if "pause_turn" in each.fact).recording
OPEN_CALL = {"type": "server_tool_use", "id": "srvtoolu_2"}


def parts(message: object) -> list[str]:
    assert isinstance(message, AssistantMessage)
    return [part.kind for part in message.content if isinstance(part, ProviderPart)]


def test_it_goes_on_and_everything_goes_back() -> None:
    async def main() -> None:
        async with wire(PAUSED.response, PAUSED.response, otherwise=ANTHROPIC.answer.response) as server:
            agent = Agent(ANTHROPIC.make(server.url))
            run = agent.start("What colour?")
            seen: list[Event] = []
            run.tap(seen.append)
            result = await run
            assert (result.stop_reason, result.text) == ("end_turn", ANSWER)
            sent = [request.json["messages"] for request in server.requests]
            assert [len(each) for each in sent] == [1, 2, 2]
            assert [holds(each, OPEN_CALL) for each in sent] == [False, True, True]
            assert len(sent[2][1]["content"]) == 2 * len(sent[1][1]["content"])
            assert len(result.messages) == 2  # one prompt, one answer, which came in three requests
            assert parts(result.messages[1]) == ["server_tool_use", "web_search_tool_result", "server_tool_use"] * 2
            assert [event.message for event in seen if isinstance(event, MessageAdded)] == list(result.messages)
            assert [entry.usage.output.value for entry in result.usage.entries] == [30, 30, 12]
            assert len({entry.turn for entry in result.usage.entries}) == 3
            assert not faults(agent.messages)
            await agent.invoke_async("Go on.")  # a call without its result would be refused before a prompt
            assert not holds(server.requests[-1].json, OPEN_CALL)

    asyncio.run(main())


@pytest.mark.parametrize(("limits", "requests", "ends"), [(Limits(), 21, "pause"), (Limits(turns=3), 3, "limit")])
@pytest.mark.promise("P1")
def test_it_is_bounded(limits: Limits, requests: int, ends: str) -> None:
    async def main() -> None:
        async with wire(otherwise=PAUSED.response) as server:
            agent = Agent(ANTHROPIC.make(server.url), limits=limits)
            result = await agent.invoke_async("What colour?")
            assert (result.stop_reason, len(server.requests)) == (ends, requests)
            assert len(result.usage.entries) == requests
            assert parts(agent.messages[1]).count("web_search_tool_result") == requests
            assert not faults(agent.messages)

    asyncio.run(main())


@pytest.mark.promise("P1", "P2")
def test_a_stop_anywhere_in_the_rest_of_the_answer() -> None:
    async def main() -> None:
        events, start = ANTHROPIC.answer.events, head(ANTHROPIC.answer.content_type)
        bodies = [b"".join(chunk(event) for event in events[:count]) for count in range(len(events) - 1)]
        async with wire(otherwise=ANTHROPIC.answer.response) as server:
            model = ANTHROPIC.make(server.url)
            for stalled in (b"", start, *(start + body for body in bodies)):
                agent = Agent(model)
                server.waiting.clear()
                server.plays[:] = [Play(PAUSED.response), Play(stalled, then="stall")]
                run = agent.start("What colour?")
                await server.waiting.wait()
                for _ in range(20):
                    await asyncio.sleep(0)
                run.cancel("enough")
                receipt = await run.stopped()
                assert receipt.stop_reason == "cancelled"
                assert [entry.ended for entry in receipt.usage.entries] == ["completed", "hung_up"]
                assert parts(agent.messages[1]) == ["server_tool_use", "web_search_tool_result", "server_tool_use"]
                assert len(agent.messages) == 2
                assert not faults(agent.messages)
                assert (await agent.invoke_async("Go on.")).text == ANSWER
                assert not holds(server.requests[-1].json, OPEN_CALL)

    asyncio.run(main())


@pytest.mark.promise("P9")
def test_what_a_pause_has_brought_is_saved(tmp_path: Path) -> None:
    async def main() -> None:
        async with wire(PAUSED.response, otherwise=ANTHROPIC.answer.response) as server:
            where = f"sqlite:///{tmp_path}/sessions.db"
            before = Agent(ANTHROPIC.make(server.url), session="sky", store=where)
            await before.invoke_async("What colour?")
            after = Agent(ANTHROPIC.make(server.url), session="sky", store=where)
            await after.invoke_async("And now?")
            assert parts(after.messages[1]) == ["server_tool_use", "web_search_tool_result", "server_tool_use"]
            assert len(after.messages) == 4

    asyncio.run(main())
