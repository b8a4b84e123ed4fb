"""Deadlines and budgets of a tree: a parent's are its children's, and are shared by all of them."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from quiesce import Agent, Limits, Price, handoff, tool
from quiesce.conversation.validity import faults
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall

from .kit import asks

PRICE = Price(Decimal(1), Decimal(1))


@pytest.mark.promise("P6", "P8")
def test_children_share_what_is_left_of_the_parents_budget():
    async def main():
        words = "word " * 400
        children = [Agent(ScriptedModel([Say(words, chunk=5)]), name=f"child{n}") for n in range(4)]
        parent = Agent(
            ScriptedModel(asks(*(child.name for child in children))),
            tools=[child.as_tool() for child in children],
            limits=Limits(output_tokens=500),
        )
        result = await parent.invoke_async("all of you")
        assert result.stop_reason == "limit"
        assert result.receipt.cause is not None
        assert result.receipt.cause.source == "budget"
        spent = sum(child.usage.output.value or 0 for child in result.children)
        assert spent < 600, "one child alone would have written about 500"
        assert {child.stop_reason for child in result.children} == {"cancelled"}

    asyncio.run(main())


def tired(name: str, turns: int, **options: Any) -> Agent:
    """An agent that calls a tool in each of so many turns, and then answers."""

    @tool
    async def step() -> str:
        """One step."""
        return "on"

    return Agent(ScriptedModel(*[[Call("step")]] * turns, then="done"), tools=[step], name=name, **options)


@pytest.mark.promise("P6", "P8")
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(turns=6), "The limit of 6 turns is reached, with those of the runs below"),
        (Limits(tool_calls=5), "The limit of 5 tool calls is reached, with those of the runs below"),
    ],
)
def test_children_share_the_parents_turns_and_calls(limits: Limits, why: str):
    async def main():
        children = [tired("left", 3), tired("right", 3)]
        model = ScriptedModel(asks("left", "right"), then="Both.")
        parent = Agent(model, tools=children, limits=limits, name="parent")
        result = await parent.invoke_async("go")
        assert (result.stop_reason, result.receipt.cause.reason) == ("limit", why)
        assert sum(child.usage.calls for child in result.children) <= 5
        assert "limit" not in {child.stop_reason for child in result.children}
        assert not faults(result.messages)
        enough = Agent(ScriptedModel(asks("left", "right"), then="Both."), tools=[tired("left", 3), tired("right", 3)],
                       limits=Limits(turns=10, tool_calls=8))  # fmt: skip
        assert (await enough.invoke_async("go")).text == "Both."

    asyncio.run(main())


@pytest.mark.promise("P6", "P8")
def test_a_childs_own_turns_stop_only_the_child():
    async def main():
        tight = tired("short", 5, limits=Limits(turns=2))
        parent = Agent(ScriptedModel(asks("short"), "Well."), tools=[tight], limits=Limits(turns=9))
        result = await parent.invoke_async("go")
        assert result.text == "Well."
        assert result.children[0].stop_reason == "limit"
        assert result.children[0].receipt.cause.reason == "The limit of 2 turns is reached"

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_child_without_a_price_may_not_spend_a_parents_money():
    async def main():
        child = Agent(ScriptedModel("free?"), name="sage")
        parent = Agent(
            ScriptedModel(asks("sage"), "no.", price=PRICE), tools=[child.as_tool()], limits=Limits(cost="1")
        )
        result = await parent.invoke_async("go")
        assert "needs a price" in result.receipt.calls[0].detail

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_a_child_in_another_currency_may_not_spend_a_parents_money():
    async def main():
        euros = Price(Decimal(1), Decimal(1), currency="EUR")
        child = Agent(ScriptedModel(then="a lot", price=euros), name="sage")
        over = handoff(child, name="over")
        for name, said in (("sage", "is in USD, and scripted is paid in EUR"), ("over", "is in USD, and scripted")):
            model = ScriptedModel([Call(name, {"prompt": "x"} if name == "sage" else {})], "no.", price=PRICE)
            parent = Agent(model, tools=[child, over], limits=Limits(cost="1"))
            result = await parent.invoke_async("go")
            assert said in result.receipt.calls[0].detail
        unlimited = Agent(ScriptedModel(asks("sage"), "yes.", price=PRICE), tools=[child])
        assert (await unlimited.invoke_async("go")).cost is None, "there is no sum of two currencies"

    asyncio.run(main())


@pytest.mark.promise("P1", "P8")
def test_a_parents_deadline_is_its_childrens():
    async def main():
        child = Agent(ScriptedModel([Stall()]), name="sage")
        parent = Agent(ScriptedModel(asks("sage")), tools=[child.as_tool()], timeout=0.05)
        result = await parent.invoke_async("go")
        (below,) = result.children
        assert below.receipt.cause is not None
        assert below.receipt.cause.origin is not None
        assert below.receipt.cause.origin.source == "deadline"

    asyncio.run(main())
