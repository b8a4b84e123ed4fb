"""Usage as it is known while runs go on, and the usage of an agent."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import pytest

from quiesce import Agent
from quiesce.events import TextDelta
from quiesce.models.scripted import Say, ScriptedModel, Used
from quiesce.usage import Price
from quiesce.usage.agent_usage import AgentUsage
from quiesce.usage.figure import reported
from quiesce.usage.ledger import Ledger, TokenUsage
from tests.core.interrupted import interrupted_at_each_line
from tests.usage.kit import WORDS

pytestmark = pytest.mark.promise("P6")


def test_usage_is_live() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel([Say(WORDS * 40)], [Say("two"), Used(3, 1)]))
        run = agent.start("hi")
        seen = []
        async for event in run:
            if isinstance(event, TextDelta):
                seen.append(run.usage.output.value)
        assert seen == sorted(seen)
        assert seen[0] < seen[-1]
        await agent.invoke_async("again")
        assert agent.usage.calls == 2
        assert len({entry.run_id for entry in agent.usage.entries}) == 2
        assert run.usage.calls == 1

    asyncio.run(main())


def test_the_usage_of_an_agent_is_live() -> None:
    ledgers, ledger = AgentUsage(), Ledger()
    below = Ledger(ledger)
    ledgers.open(ledger)
    ledgers.open(below)  # a part of the other one already
    entry = below.open(run_id="r", model="m", turn=1, attempt=1)
    assert ledgers.usage.calls == 1
    below.update(entry, TokenUsage(reported(1), reported(2)), ended="completed")
    assert ledgers.usage.output.value == 2
    below.expect(entry)
    ledgers.close(ledger)
    assert len(ledgers.expected()) == 1
    below.supersede(entry, TokenUsage(reported(1), reported(5)))
    below.settle(entry)
    assert ledgers.expected() == ()
    assert ledgers.usage.output.value == 5
    assert ledgers.usage.calls == 1


def test_a_ctrl_c_while_a_ledger_is_closed_counts_nothing_twice() -> None:
    def play(press: Callable[[Callable[[], None]], None]) -> None:
        ledgers = AgentUsage(kept=2)
        for number in range(6):
            ledger = Ledger()
            ledgers.open(ledger)
            entry = ledger.open(run_id=f"r{number}", model="m", turn=1, attempt=1)
            ledger.update(entry, TokenUsage(reported(3), reported(7)), ended="completed")
            if number == 1:
                press(partial(ledgers.close, ledger))
            ledgers.close(ledger)
        assert ledgers.usage.calls == 6
        assert ledgers.usage.output == reported(42)

    assert interrupted_at_each_line(("agent_usage.py",), play) > 5


def test_the_usage_of_an_agent_keeps_the_sum_and_the_newest_entries() -> None:
    ledgers = AgentUsage(kept=10)
    price = Price(Decimal(1), Decimal(2))
    for number in range(100):
        ledger = Ledger()
        ledgers.open(ledger)
        entry = ledger.open(run_id=f"r{number}", model="m", turn=1, attempt=1)
        ledger.update(entry, TokenUsage(reported(3), reported(7)), price=price, ended="completed")
        ledgers.close(ledger)
        usage = ledgers.usage
        assert usage.calls == number + 1
        assert usage.input == reported(3 * usage.calls)
        assert usage.output == reported(7 * usage.calls)
        assert usage.cost is not None
        assert usage.cost.value == Decimal(17) * usage.calls / 1_000_000
        assert usage.is_final
        assert len(usage.entries) <= 10
        assert usage.entries[-1].run_id == f"r{number}"
