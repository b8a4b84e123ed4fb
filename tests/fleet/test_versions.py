"""Deploys: a run goes on with the version of the agent that it was started with, or says that it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.cli.fleet_store import view
from quiesce.cli.ps import _state
from quiesce.fleet import versions
from quiesce.fleet.versions import agent_version
from quiesce.models.scripted import Say, ScriptedModel, Stall

from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P4", "P9")


def endless(instructions: str) -> Agent:
    return Agent(ScriptedModel(then=[Say("It was a dark night. "), Stall()]), instructions=instructions)


def ending(instructions: str) -> Agent:
    return Agent(ScriptedModel(then="And then it ended."), instructions=instructions)


async def drained(fleet: FleetUnderTest, session: str = "ann/s") -> str:
    """The run that goes on with one whose worker, with version one, was drained."""
    async with fleet.worker(endless("one"), hurry=True):
        run = await fleet.submit(session=session)
        await fleet.until(run.id, "text")
    ended = await fleet.rest(run.id)
    assert ended.receipt is not None
    assert (ended.receipt.cause and ended.receipt.cause.source, bool(ended.restarted_as)) == ("shutdown", True)
    return ended.restarted_as


def test_only_the_same_version_goes_on_and_another_one_says_that_it_cannot(
    run_fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        following = await drained(fleet)
        (before,) = await fleet.fleet.runs(states=["ended"])
        assert _state(view(before)) == f"cancelled, goes on as {following}"
        changed = ending("two")
        async with fleet.worker(changed):  # takes new runs, and leaves this one
            other = await fleet.submit(session="ann/other")
            assert (await fleet.rest(other.id)).version == agent_version(changed)
            waiting = await fleet.fleet.find(following)
            assert waiting is not None
            assert (waiting.state, waiting.version) == ("queued", agent_version(endless("one")))
            async with fleet.worker(ending("one")):
                assert (await fleet.rest(following)).reason == "end_turn"

        second = await drained(fleet, "ann/two")
        monkeypatch.setattr(versions, "PATIENCE", 0.0)
        async with fleet.worker(changed, lease=0.4):
            refused = await fleet.rest(second)
        assert (refused.state, refused.reason, refused.attempt) == ("ended", "error", 0)
        assert refused.receipt is not None
        assert refused.receipt.cause is not None
        assert "The agent 'agent' has changed since the run began" in refused.receipt.cause.reason

        third = await drained(fleet, "ann/three")
        async with fleet.worker(changed, lease=0.4, accept_changed_agents=True):
            accepted = await fleet.rest(third)
        assert (accepted.reason, accepted.version) == ("end_turn", agent_version(changed))

    run_fleet(test)


@pytest.mark.feature
def test_a_version_is_the_model_the_instructions_and_the_tools() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    plain = agent_version(ending("one"))
    assert plain == agent_version(endless("one"))
    assert plain != agent_version(ending("two"))
    model = ScriptedModel(then="")
    with_tool = agent_version(Agent(model, instructions="one", tools=[pay]))
    assert with_tool != plain

    @tool(name="pay")
    def pay_more(amount: int, currency: str = "EUR") -> str:
        """Pay."""
        return "paid"

    assert with_tool != agent_version(Agent(model, instructions="one", tools=[pay_more]))
    assert agent_version(Agent(model, instructions=lambda _: "one")) == agent_version(
        Agent(model, instructions=lambda _: "two")
    )
