"""Stopping one call, by hand or by its timeout, while the turn goes on."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import hazards
import pytest
from tool_runs import agent_with, call, results, run_async, stop_when, stray_processes

from quiesce import Agent, ToolContext
from quiesce.events import InterruptRaised, ToolEnded, ToolProgress, ToolStarted
from quiesce.hooks import AfterToolCall, BeforeToolCall, OnLateOutcome
from quiesce.messages import Outcome
from quiesce.testing import Call, Gate, ScriptedModel, run_virtual
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P4", "P7")


async def endless(ctx: ToolContext) -> str:
    ctx.report("ready")
    await asyncio.sleep(10_000)
    return "never"


async def brief() -> str:
    await asyncio.sleep(1)
    return "brief"


def cancel_first_started(run, name: str, reason: str = "not needed") -> list[bool]:
    """What `cancel_tool` returns is in the list, once the call has begun: an `assert` in a tap would fail no test."""
    taken: list[bool] = []

    def act(event: object) -> None:
        if isinstance(event, ToolStarted) and event.call.name == name:
            taken.append(run.cancel_tool(event.call.id, reason))

    run.tap(act)
    return taken


def test_one_call_is_stopped_and_the_turn_goes_on() -> None:
    async def main() -> None:
        seen: list[str] = []

        def after(event: AfterToolCall) -> None:
            seen.append(f"{event.call.name} {event.result.outcome}")

        agent = agent_with(Tool(endless), Tool(brief), hooks=[after])
        run = agent.start("go")
        taken = cancel_first_started(run, "endless")
        events = [event async for event in run]
        outcome = await run
        assert taken == [True]
        found = results(outcome)
        assert outcome.stop_reason == "end_turn"
        assert outcome.text == "done"
        assert found["brief"].text == "brief"
        assert found["endless"].outcome is Outcome.CANCELLED
        assert found["endless"].text.startswith("This call was stopped on request (not needed). Stopped while it was")
        assert seen == ["endless cancelled", "brief completed"]
        ended = [event.result.name for event in events if isinstance(event, ToolEnded)]
        assert sorted(ended) == ["brief", "endless"]

    run_virtual(main())


def test_a_killable_call_is_killed_alone(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = Tool(hazards.double_fork, on_stop="kill", grace=0.05)
        agent = agent_with(each, Tool(brief), calls=[Call(each.name, {"book": book}, id="c1"), Call("brief")])
        outcome, _ = await stop_when(agent, lambda run: run.cancel_tool("c1"))
        assert outcome.stop_reason == "end_turn"
        assert results(outcome)[each.name].outcome is Outcome.KILLED
        assert results(outcome)[each.name].text.startswith("This call was stopped on request. Killed")
        assert hazards.survivors(book) == []

    run_async(main())


def test_from_another_thread() -> None:
    async def main() -> None:
        agent = agent_with(Tool(endless), calls=[Call("endless", id="c1")])

        def act(run) -> None:
            thread = threading.Thread(target=run.cancel_tool, args=("c1", "elsewhere"))
            thread.start()
            thread.join()

        outcome, _ = await stop_when(agent, act)
        assert "elsewhere" in results(outcome)["endless"].text
        assert outcome.stop_reason == "end_turn"

    run_async(main())


def test_a_call_that_has_not_begun_never_does() -> None:
    async def main() -> None:
        calls = [Call("brief", id="a"), Call("second", id="b"), Call("third", id="c")]
        tools = [Tool(brief), Tool(endless, name="second"), Tool(brief, name="third")]
        run = agent_with(*tools, calls=calls, tool_execution="sequential").start("go")
        run.tap(lambda event: isinstance(event, ToolStarted) and event.call.id == "a" and run.cancel_tool("b", "no"))
        outcome = await run
        found = results(outcome)
        assert found["second"].outcome is Outcome.NEVER_STARTED
        assert found["second"].text == "Not run. This call was stopped on request (no)."
        assert found["third"].text == "brief"

    run_virtual(main())


def test_a_call_that_waits_for_a_hook_never_begins() -> None:
    async def main() -> None:
        async def ask(event: BeforeToolCall) -> None:
            if event.call.name == "endless":
                run.cancel_tool(event.call.id, "while asking")
                await asyncio.sleep(1000)

        agent = agent_with(Tool(endless), Tool(brief), hooks=[ask])
        run = agent.start("go")
        outcome = await run
        assert results(outcome)["endless"].outcome is Outcome.NEVER_STARTED
        assert results(outcome)["brief"].text == "brief"
        assert outcome.stop_reason == "end_turn"

    run_virtual(main())


def test_a_call_that_does_not_stop_is_left_behind_and_the_turn_goes_on() -> None:
    released: list[bool] = []

    async def deaf() -> str:
        while not released:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
        return "at last"

    async def main() -> None:
        run = agent_with(Tool(deaf, grace=1), Tool(brief)).start("go")
        cancel_first_started(run, "deaf")
        outcome = await run
        assert results(outcome)["deaf"].outcome is Outcome.ABANDONED
        assert results(outcome)["deaf"].text.startswith("This call was stopped on request (not needed). No result: it")
        assert outcome.text == "done"
        assert outcome.receipt.still_running == ("tool deaf (call_1)",)
        released.append(True)
        await asyncio.sleep(20)
        assert [(each.name, each.ok, each.detail) for each in outcome.receipt.late] == [("deaf", True, "at last")]

    run_virtual(main())


def test_a_thread_is_told_and_then_left_behind() -> None:
    gate = Gate()
    seen: list[bool] = []

    def waits(ctx: ToolContext) -> str:
        gate.wait()
        seen.append(ctx.token.cancelled)
        return "late"

    async def main() -> None:
        late: list[OnLateOutcome] = []

        def on_late(event: OnLateOutcome) -> None:
            late.append(event)

        agent = agent_with(Tool(waits), Tool(brief), hooks=[on_late])
        run = agent.start("go")
        cancel_first_started(run, "waits")
        outcome = await run
        assert results(outcome)["waits"].outcome is Outcome.ABANDONED
        assert outcome.stop_reason == "end_turn"
        gate.open()
        while not late:
            await asyncio.sleep(0.01)
        assert (late[0].outcome.ok, late[0].outcome.detail) == (True, "late")
        assert outcome.receipt.late == [late[0].outcome]
        assert "later     waits finished" in str(outcome.receipt)

    run_virtual(main())
    assert seen == [True]


def test_too_late_or_unknown_is_false() -> None:
    async def main() -> None:
        agent = agent_with(Tool(brief), calls=[Call("brief", id="c1")])
        run = agent.start("go")
        assert run.cancel_tool("c1") is False
        answers: list[bool] = []
        run.tap(lambda event: answers.append(run.cancel_tool("c1")) if isinstance(event, ToolEnded) else None)
        run.tap(lambda event: answers.append(run.cancel_tool("other")) if isinstance(event, ToolStarted) else None)
        outcome = await run
        assert results(outcome)["brief"].text == "brief"
        assert answers == [False, False]
        assert run.cancel_tool("c1") is False

    run_virtual(main())


@pytest.mark.parametrize("tool_execution", ["parallel", "sequential"])
def test_a_call_that_waits_for_a_person_waits_no_longer(tool_execution: str) -> None:
    async def pay() -> str:
        return "paid"

    async def main() -> None:
        calls = [Call("pay", id="p"), Call("brief", id="b")]
        agent = agent_with(Tool(pay, requires_approval=True), Tool(brief), calls=calls, tool_execution=tool_execution)
        run = agent.start("go")
        answers: list[bool] = []
        run.tap(lambda event: answers.append(run.cancel_tool("p", "no")) if isinstance(event, InterruptRaised) else 0)
        outcome = await run
        assert (answers, outcome.stop_reason) == ([True], "end_turn")
        assert results(outcome)["pay"].text == "Not run. This call was stopped on request (no)."
        assert results(outcome)["brief"].text == "brief"
        assert agent.interrupts == ()

    run_virtual(main())


def test_what_a_call_that_waited_for_a_person_held_up_goes_on_when_it_is_stopped() -> None:
    async def pay() -> str:
        return "paid"

    async def main() -> None:
        asks, held = Tool(pay, requires_approval=True, sequential=True), Tool(brief, name="held", sequential=True)
        calls = [Call("pay", id="p"), Call("held"), Call("brief")]
        run = agent_with(asks, held, Tool(brief), calls=calls).start("go")
        asyncio.get_running_loop().call_later(0.5, run.cancel_tool, "p")
        found = results(await run)
        assert {name: each.text for name, each in found.items()} == {
            "pay": "Not run. This call was stopped on request.",
            "held": "brief",
            "brief": "brief",
        }

    run_virtual(main())


def test_one_of_two_that_wait_for_a_person_is_stopped_when_the_other_is_answered() -> None:
    async def pay() -> str:
        await asyncio.sleep(1)
        return "paid"

    async def main() -> None:
        calls = [Call("pay", id="p"), Call("pay", id="q")]
        agent = agent_with(Tool(pay, requires_approval=True), calls=calls)
        assert (await agent.invoke_async("go")).stop_reason == "interrupt"
        run = agent.start_answer({"p:approval": True})
        run.tap(lambda event: isinstance(event, ToolStarted) and run.cancel_tool("q"))
        outcome = await run
        assert outcome.stop_reason == "end_turn"
        texts = [result.text for result in outcome.messages[2].results]
        assert texts == ["paid", "Not run. This call was stopped on request."]

    run_virtual(main())


def test_a_result_that_came_all_the_same_is_kept() -> None:
    async def insists() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        return "finished all the same"

    async def main() -> None:
        run = agent_with(Tool(insists)).start("go")
        cancel_first_started(run, "insists")
        outcome = await run
        assert results(outcome)["insists"].text == "finished all the same"
        assert outcome.stop_reason == "end_turn"

    run_virtual(main())


def test_a_stop_of_the_run_while_one_call_is_being_stopped() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(3)
        return "never"

    async def main() -> None:
        run = agent_with(Tool(stubborn, grace=5), Tool(endless)).start("go")
        cancel_first_started(run, "stubborn")
        asyncio.get_running_loop().call_later(1, run.cancel)
        outcome = await run
        assert outcome.stop_reason == "cancelled"
        assert {name: each.outcome for name, each in results(outcome).items()} == {
            "stubborn": Outcome.CANCELLED,
            "endless": Outcome.CANCELLED,
        }

    run_virtual(main())


# --- Timeouts ------------------------------------------------------------------------------------------------------


@pytest.mark.leaves("tasks")  # what is abandoned
@pytest.mark.parametrize("on_stop", ["cancel", "finish", "abandon"])
def test_a_timeout_stops_an_async_call(on_stop: str) -> None:
    async def main() -> None:
        agent = agent_with(Tool(endless, timeout=5, grace=2, on_stop=on_stop), Tool(brief, timeout=5))
        outcome = await agent.invoke_async("go")
        found = results(outcome)
        assert outcome.stop_reason == "end_turn"
        assert found["brief"].text == "brief"
        expected = Outcome.ABANDONED if on_stop == "abandon" else Outcome.CANCELLED
        assert found["endless"].outcome is expected
        assert found["endless"].text.startswith("It took longer than its timeout of 5 s.")
        passed = asyncio.get_running_loop().time()
        assert passed == pytest.approx(5 if on_stop == "cancel" else 7, abs=0.2)

    run_virtual(main())


def test_a_timeout_kills_a_killable_call(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        each = Tool(hazards.hold_interpreter, on_stop="kill", grace=0.05, timeout=0.3)
        result = await call(each, {"book": book})
        assert result.outcome is Outcome.KILLED
        assert result.text.startswith("It took longer than its timeout of 0.3 s. Killed")
        assert hazards.survivors(book) == []
        assert stray_processes() == []

    run_async(main())


# --- Odd tools in the loop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("own")])
def test_what_ends_programs_ends_only_the_call(error: BaseException) -> None:
    async def in_a_task() -> str:
        raise error

    def in_a_thread() -> str:
        raise error

    async def main() -> None:
        agent = agent_with(Tool(in_a_task), Tool(in_a_thread))
        run = agent.start("go")
        events = [event async for event in run]
        outcome = await run
        for result in results(outcome).values():
            assert result.outcome is Outcome.COMPLETED
            assert result.is_error
            assert result.text.startswith(type(error).__name__)
        assert outcome.stop_reason == "end_turn"
        assert len([event for event in events if isinstance(event, ToolEnded)]) == 2

    run_virtual(main())


def test_what_looks_like_ctrl_c_in_a_thread_ends_only_the_call() -> None:
    def in_a_thread() -> str:
        raise KeyboardInterrupt("k")

    async def main() -> None:
        outcome = await agent_with(Tool(in_a_thread)).invoke_async("go")
        (result,) = results(outcome).values()
        assert result.is_error
        assert result.text.startswith("KeyboardInterrupt")
        assert outcome.stop_reason == "end_turn"

    run_virtual(main())


def test_an_abandoned_call_is_recorded_when_it_ends() -> None:
    """The run has ended, the loop goes on: receipt and hook hear of the late outcome, once each."""

    async def slow(fail: bool) -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(10)
        if fail:
            raise ValueError("in the end")
        return "in the end"

    async def main() -> None:
        late: list[tuple[str, bool]] = []

        def on_late(event: OnLateOutcome) -> None:
            assert event.receipt is not None
            late.append((event.outcome.detail, event.outcome.ok))

        tools = [Tool(slow, name="well", on_stop="abandon", grace=1), Tool(slow, name="badly", grace=1)]
        calls = [Call("well", {"fail": False}), Call("badly", {"fail": True})]
        run = agent_with(*tools, calls=calls, hooks=[on_late]).start("go")
        started: list[object] = []
        run.tap(lambda event: started.append(event) if isinstance(event, ToolStarted) else None)
        run.tap(lambda event: run.cancel() if len(started) == 2 and run.cause is None else None)
        outcome = await run
        assert {each.outcome for each in results(outcome).values()} == {Outcome.ABANDONED}
        assert len(outcome.receipt.still_running) == 2
        before = outcome.messages
        await asyncio.sleep(60)
        assert sorted(late) == [("ValueError: in the end", False), ("in the end", True)]
        assert sorted(each.name for each in outcome.receipt.late) == ["badly", "well"]
        assert run.messages == before

    run_virtual(main())


def test_progress_of_a_call_that_was_left_behind_is_not_told() -> None:
    async def chatty(ctx: ToolContext) -> str:
        while True:
            try:
                await asyncio.sleep(1)
                ctx.report("still here")
                if stop:
                    return "gone"
            except asyncio.CancelledError:
                continue

    stop: list[bool] = []

    async def main() -> None:
        agent = Agent(ScriptedModel([Call("chatty")], [Call("brief")], then="done"), tools=[chatty_tool, Tool(brief)])
        run = agent.start("go")
        told: list[float] = []
        run.tap(
            lambda event: told.append(asyncio.get_running_loop().time()) if isinstance(event, ToolProgress) else None
        )
        await run
        stop.append(True)
        await asyncio.sleep(5)
        assert told
        assert max(told) <= 4

    chatty_tool = Tool(chatty, timeout=2.5, grace=1)
    run_virtual(main())
