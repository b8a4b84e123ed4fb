"""A parent's budget counts the requests of its children that are under way, each with its latest figure."""

from __future__ import annotations

import asyncio

import pytest

from quiesce import Agent, Limits
from quiesce.models.scripted import Say, ScriptedModel, Stall, Step, Used

from .kit import asks


def reports(*outputs: int) -> list[Step]:
    """A report of usage from the middle of an answer for each of these cumulative figures."""
    return [Used(input=1, output=output, final=False) for output in outputs]


def family(limits: Limits, left: list[Step], right: list[Step]) -> Agent:
    """A parent that asks two children at once. The timeout ends a run that the budget should have stopped."""
    children = [Agent(ScriptedModel(answer), name=name) for name, answer in (("left", left), ("right", right))]
    return Agent(ScriptedModel(asks("left", "right"), "Both."), tools=children, limits=limits, timeout=20)


@pytest.mark.promise("P6", "P8")
@pytest.mark.parametrize("limits", [Limits(output_tokens=5000), Limits(tokens=5000)], ids=["output", "tokens"])
def test_requests_of_children_that_have_not_ended_count(limits: Limits):
    stuck: list[Step] = [Say("Well"), *reports(3000), Stall()]
    result = asyncio.run(family(limits, stuck, stuck).invoke_async("both of you"))
    assert result.receipt.cause is not None
    assert (result.stop_reason, result.receipt.cause.source) == ("limit", "budget")
    assert result.receipt.cause.reason.startswith("The run and its children would use more than 5,000")
    assert [child.usage.output.value for child in result.children] == [3000, 3000]


@pytest.mark.promise("P6")
def test_requests_within_the_budget_go_on():
    ends: list[Step] = [Say("Well"), *reports(1000)]
    result = asyncio.run(family(Limits(output_tokens=5000), [Say("Well"), *reports(3000)], ends).invoke_async("go"))
    assert (result.stop_reason, result.text) == ("end_turn", "Both.")


@pytest.mark.promise("P6")
def test_a_later_figure_of_a_request_replaces_the_earlier_one():
    """The figures are cumulative, and the last one is the entry's: 2 * 2200 tokens, although 2 * 5200 were reported."""
    grows: list[Step] = [Say("Well"), *reports(1000, 2000, 2200)]
    result = asyncio.run(family(Limits(output_tokens=5000), grows, grows).invoke_async("go"))
    assert (result.stop_reason, result.text) == ("end_turn", "Both.")
    assert [child.usage.output.value for child in result.children] == [2200, 2200]
