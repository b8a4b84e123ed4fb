"""`ctx.shield()`: a part of a tool that a stop waits for."""

from __future__ import annotations

import asyncio

import pytest
from tool_runs import agent_with, results

from quiesce import ToolContext
from quiesce.events import ToolProgress
from quiesce.messages import Outcome
from quiesce.testing import Call, run_virtual
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P3", "P4")


class Account:
    """Two halves of a transfer that must not be torn apart."""

    def __init__(self, *, seconds: float = 1.0) -> None:
        self.steps: list[str] = []
        self._seconds = seconds

    async def transfer(self, ctx: ToolContext) -> str:
        ctx.report("before")
        await asyncio.sleep(1)
        async with ctx.shield("transfer"):
            self.steps.append("taken")
            ctx.report("inside")
            await asyncio.sleep(self._seconds)
            self.steps.append("given")
        self.steps.append("after")
        await asyncio.sleep(1)
        self.steps.append("told")
        return "transferred"


def stop_at(progress: str, account: Account, *, grace: float = 5.0, mode: str = "now", on_stop: str = "cancel"):
    async def main():
        tool = Tool(account.transfer, on_stop=on_stop, grace=grace)
        run = agent_with(tool, calls=[Call("transfer")]).start("go")
        run.tap(
            lambda event: run.cancel(mode=mode) if isinstance(event, ToolProgress) and event.progress == progress else 0
        )
        return await run, asyncio.get_running_loop().time()

    return run_virtual(main())


def test_a_stop_waits_for_the_protected_part_and_no_longer() -> None:
    account = Account()
    outcome, _ = stop_at("inside", account)
    assert account.steps == ["taken", "given"]
    assert results(outcome)["transfer"].outcome is Outcome.CANCELLED
    assert outcome.receipt.waited_for == ("transfer (transfer)",)
    assert "waited for its protected part" in outcome.receipt.calls[0].detail
    assert "transfer (transfer)" in str(outcome.receipt)


def test_a_stop_before_the_protected_part_does_not_enter_it() -> None:
    account = Account()
    outcome, _ = stop_at("before", account)
    assert account.steps == []
    assert results(outcome)["transfer"].outcome is Outcome.CANCELLED


def test_the_grace_bounds_the_protected_part() -> None:
    account = Account(seconds=1000)
    outcome, at = stop_at("inside", account, grace=3)
    assert account.steps == ["taken"]
    assert results(outcome)["transfer"].outcome is Outcome.CANCELLED
    assert at == pytest.approx(1 + 3)


def test_a_kill_does_not_wait() -> None:
    account = Account(seconds=1000)
    _, at = stop_at("inside", account, mode="kill")
    assert account.steps == ["taken"]
    assert at == pytest.approx(1)


def test_a_shield_in_a_tool_that_may_finish_changes_nothing() -> None:
    account = Account()
    outcome, _ = stop_at("inside", account, on_stop="finish")
    assert account.steps == ["taken", "given", "after", "told"]
    assert results(outcome)["transfer"].text == "transferred"


def test_shields_nest_and_an_error_inside_passes() -> None:
    async def nested(ctx: ToolContext) -> str:
        async with ctx.shield("outer"):
            async with ctx.shield("inner"):
                ctx.report("inside")
                await asyncio.sleep(1)
            await asyncio.sleep(1)
            raise ValueError("whole")

    async def main() -> None:
        run = agent_with(Tool(nested, grace=9), calls=[Call("nested")]).start("go")
        run.tap(lambda event: run.cancel() if isinstance(event, ToolProgress) else None)
        outcome = await run
        assert results(outcome)["nested"].text == "ValueError: whole"
        assert outcome.receipt.waited_for == ("nested (outer, inner)",)

    run_virtual(main())


def test_shields_side_by_side_are_told_apart() -> None:
    async def both(ctx: ToolContext) -> str:
        async def part(name: str, seconds: float) -> None:
            async with ctx.shield(name):
                await asyncio.sleep(seconds)

        await asyncio.gather(part("short", 1), part("long", 5))
        await asyncio.sleep(100)
        return "never"

    async def main() -> None:
        run = agent_with(Tool(both, grace=9), calls=[Call("both")]).start("go")
        asyncio.get_running_loop().call_later(3, run.cancel)
        assert (await run).receipt.waited_for == ("both (long)",)

    run_virtual(main())


def test_a_shield_in_a_thread_is_harmless() -> None:
    def threaded(ctx: ToolContext) -> str:
        with ctx.shield("x"):
            return "done"

    async def main() -> None:
        outcome = await agent_with(Tool(threaded)).invoke_async("go")
        assert results(outcome)["threaded"].text == "done"

    asyncio.run(main())
