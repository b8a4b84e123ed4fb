"""Leaving a stream with `break`, and prompting again at once."""

from __future__ import annotations

import pytest

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.errors import ConversationBusy
from quiesce.events import TextDelta
from quiesce.testing import Say, ScriptedModel, Stall, run_virtual

pytestmark = pytest.mark.promise("P2", "P8")


@pytest.mark.case("openai-agents-python#2222")
def test_the_next_prompt_waits_for_a_run_that_is_being_stopped() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Once upon"), Stall()], "Yes?"))
        async for event in agent.stream_async("Tell me"):
            if isinstance(event, TextDelta):
                break
        result = await agent.invoke_async("Something else")
        assert result.text == "Yes?"
        assert not faults(agent.messages)

    run_virtual(main())


def test_a_run_that_goes_on_is_not_disturbed() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Once upon"), Stall()]))
        run = agent.start("Tell me")
        with pytest.raises(ConversationBusy):
            agent.start("Something else")
        run.cancel(mode="after_turn")  # patient: it may take as long as it likes
        with pytest.raises(ConversationBusy):
            agent.start("Something else")
        run.cancel()
        await run.stopped()

    run_virtual(main())
