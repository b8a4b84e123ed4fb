"""Ctrl-C without a handler, in a bare loop: it stops the run that it meets, and is raised."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.cancellation import BoundedShield
from quiesce.conversation.validity import faults
from quiesce.events import TextDelta
from quiesce.hooks import AfterRun, BeforeModelCall, BeforeToolCall
from quiesce.messages import AssistantMessage, ToolMessage
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.processes.started import started_by
from quiesce.tools import invocation
from quiesce.tools.thread import ThreadCall
from quiesce.tools.worker.call import WorkerCall
from quiesce.usage.estimate.answer_count import AnswerCounter, Block
from quiesce.usage.estimate.pieces import Pieces
from quiesce.usage.estimate.vocabulary import Vocabulary
from tests.core.interrupted import interrupted_at_each_line

pytestmark = pytest.mark.promise("P7", "P8")


@tool
async def interrupted() -> str:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


@tool
async def quick() -> str:
    return "done"


@tool
def in_a_thread() -> str:
    raise KeyboardInterrupt


def press(agent: Agent):
    """The run after Ctrl-C in a bare loop, which then goes on, as in a notebook."""
    loop, runs = asyncio.new_event_loop(), []

    async def go() -> None:
        runs.append(agent.start("go"))
        await runs[0]

    async def rest() -> None:
        await asyncio.wait_for(runs[0].stopped(), 5)
        assert (await agent.invoke_async("again")).text == "Fine."

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(go())
    try:
        loop.run_until_complete(rest())
    finally:
        loop.close()
    assert runs[0].cause.source == "signal"
    assert faults(agent.messages) == ()
    return runs[0].wait(0)


def test_in_an_async_tool() -> None:
    result = press(Agent(ScriptedModel([Call("interrupted")], then="Fine."), tools=[interrupted]))
    assert (result.stop_reason, result.receipt.cause.reason) == ("cancelled", "Ctrl-C")
    assert [each.outcome for each in result.receipt.calls] == ["cancelled"]


def test_in_a_hook_of_a_tool() -> None:
    agent = Agent(ScriptedModel([Call("quick")], then="Fine."), tools=[quick])

    @agent.hook(BeforeToolCall)
    def hook(event: BeforeToolCall) -> None:
        raise KeyboardInterrupt

    result = press(agent)
    assert result.stop_reason == "cancelled"
    assert [each.outcome for each in result.receipt.calls] == ["never_started"]


def test_as_a_tool_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found at line 1,473 of 5,400: the value was lost between the tool and the call."""

    class Pressed:
        """The variable that a call sets before its tool runs, and resets after it."""

        def set(self, value: Any) -> Any:
            return started_by.set(value)

        def reset(self, before: Any) -> None:
            started_by.reset(before)
            if not pressed:
                pressed.append(True)
                raise KeyboardInterrupt

    pressed: list[bool] = []
    monkeypatch.setattr(invocation, "started_by", Pressed())
    result = press(Agent(ScriptedModel([Call("quick")], then="Fine."), tools=[quick]))
    assert [each.outcome for each in result.receipt.calls] == ["completed"]
    results = [each.text for message in result.messages if isinstance(message, ToolMessage) for each in message.results]
    assert results == ["done"]


def test_in_the_model() -> None:
    class Interrupted(ScriptedModel):
        def _deltas(self, step):
            if len(self.requests) == 1:
                raise KeyboardInterrupt
            return super()._deltas(step)

    assert press(Agent(Interrupted("never", then="Fine."))).stop_reason == "cancelled"


def test_between_the_claim_and_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation is held by no run afterwards, and the prompt is sealed."""
    from quiesce.run import agent_runs

    agent = Agent(ScriptedModel(then="Fine."))

    def pressed(*args, **options):
        raise KeyboardInterrupt

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(agent_runs, "Run", type("Run", (agent_runs.Run,), {"__init__": pressed}))
            with pytest.raises(KeyboardInterrupt):
                agent.start("go")
        assert agent.conversation.holder is None
        assert faults(agent.messages) == ()
        assert (await agent.invoke_async("again")).text == "Fine."

    asyncio.run(main())
    assert agent.active_runs == ()


@pytest.mark.parametrize("at", ["start", "wait"])
def test_in_the_loop_while_a_thread_works(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found at line 1,741 of 5,807: it was taken for the failure of the tool, and swallowed."""
    working, go_on, pressed = threading.Event(), threading.Event(), []

    @tool
    def slow() -> str:
        working.set()
        go_on.wait(10)
        return "late"

    class Pressed(ThreadCall):
        async def wait(self) -> object:
            if pressed:
                return await super().wait()
            pressed.append(True)
            if at == "start":
                raise KeyboardInterrupt
            waiting = super().wait()
            waiting.send(None)
            working.wait(10)
            return waiting.throw(KeyboardInterrupt)

    monkeypatch.setattr(invocation, "ThreadCall", Pressed)
    try:
        result = press(Agent(ScriptedModel([Call("slow")], then="Fine."), tools=[slow]))
    finally:
        go_on.set()
    assert [each.outcome for each in result.receipt.calls] == ["cancelled" if at == "start" else "abandoned"]
    assert bool(result.receipt.still_running) is (at == "wait")


@tool(on_stop="kill")
def in_a_process() -> str:
    time.sleep(60)
    return "late"


def test_in_the_loop_while_a_process_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is gone when the run is at rest."""
    worked = []

    class Pressed(WorkerCall):
        async def wait(self) -> object:
            waiting = super().wait()
            waiting.send(None)
            worked.append(self)
            return waiting.throw(KeyboardInterrupt)

    monkeypatch.setattr("quiesce.tools.worker.call.WorkerCall", Pressed)
    result = press(Agent(ScriptedModel([Call("in_a_process")], then="Fine."), tools=[in_a_process]))
    assert [each.outcome for each in result.receipt.calls] in (["killed"], ["never_started"])
    assert worked[0]._worker.supervised.gone
    assert result.receipt.still_running == ()


def test_what_a_thread_raises_is_the_failure_of_its_tool() -> None:
    agent = Agent(ScriptedModel([Call("in_a_thread")], then="Fine."), tools=[in_a_thread])
    result = asyncio.run(agent.invoke_async("go"))
    assert [(each.outcome, each.ok) for each in result.receipt.calls] == [("completed", False)]


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P2", "P3")
def test_at_each_line_that_adds_a_turn_to_the_conversation() -> None:
    @tool
    async def look() -> str:
        return "nothing"

    def play(press: Callable[[Callable[[], Any]], Any]) -> None:
        agent, told = Agent(ScriptedModel([Say("Well. "), Call("look")], "Done.", then="Fine."), tools=[look]), []

        async def go() -> None:
            run = agent.start("go")
            run.tap(lambda event: told.append(event.text) if isinstance(event, TextDelta) else None)
            await run

        press(lambda: asyncio.run(go()))
        assert faults(agent.messages) == ()
        kept = "".join(each.text for each in agent.messages if isinstance(each, AssistantMessage))
        assert kept == "".join(told)
        assert agent("and now?").text in ("Done.", "Fine.")

    assert interrupted_at_each_line(("run/turn.py",), play) > 20


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P3", "P7")
def test_at_each_line_that_writes_the_ending() -> None:
    """A prompt that was accepted and not sent is in the result, even if the ending is written twice."""

    def play(press: Callable[[Callable[[], Any]], Any]) -> None:
        agent = Agent(ScriptedModel([Say("Well. "), Stall()], then="Fine."))
        runs, accepted = [], []

        async def go() -> None:
            runs.append(agent.start("go"))
            while not runs[0].messages[1:]:
                await asyncio.sleep(0)
            accepted.append(runs[0].enqueue("and this"))
            runs[0].cancel("enough")
            await runs[0].stopped()

        press(lambda: asyncio.run(go()))
        result = runs[0].wait(0)
        assert [message.text for message in result.unsent] == ["and this"] * sum(accepted)
        assert result.receipt.cause is not None
        assert faults(agent.messages) == ()

    assert interrupted_at_each_line(("run/ending.py",), play) > 20


@pytest.mark.promise("P5")
def test_in_the_wait_for_the_last_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def wait(event: AfterRun) -> None:
        if not ended:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("ended")

    original = BoundedShield.wait

    async def interrupted_wait(self: BoundedShield, futures: Any, *, seconds: float, **options: Any) -> None:
        if seconds and not ended:
            raise KeyboardInterrupt
        await original(self, futures, seconds=seconds, **options)

    monkeypatch.setattr(BoundedShield, "wait", interrupted_wait)
    press(Agent(ScriptedModel("Hm.", then="Fine."), hooks=[wait]))
    assert ended == ["ended"]


@pytest.mark.promise("P5")
# A Ctrl-C between a coroutine and its task: Python warns that the coroutine was never awaited, which is so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("waits_for", ["model", "drained model", "hook"])
def test_at_each_line_that_waits_for_code_of_other_people(waits_for: str) -> None:
    """Found with the workload `stall` at line 647 of 2,306: the task that reads the model's stream was left running."""

    async def wait(event: BeforeModelCall) -> None:
        await asyncio.sleep(3600)

    def play(press: Callable[[Callable[[], Any]], Any]) -> None:
        model = ScriptedModel([Say("And then"), Stall()], then="Fine.")
        drains = waits_for == "drained model"
        agent = Agent(model, stop_policy="drain" if drains else "hang_up", hooks=[wait] if waits_for == "hook" else [])
        runs, callers = [], []

        async def go() -> None:
            callers.append(asyncio.current_task())
            runs.append(agent.start("go", timeout=0.01))
            await runs[0]

        async def rest() -> None:
            receipt = await asyncio.wait_for(runs[0].stopped(), 5)
            left = asyncio.all_tasks() - {asyncio.current_task(), *callers}
            assert {task.get_name() for task in left} == set(receipt.still_running)
            assert model.open_streams == len(left) <= drains
            agent.config.drain_pool.cut()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.wait(callers)  # what they have waited for is there, and they are about to go on

        with asyncio.Runner() as runner:
            press(lambda: runner.run(go()))
            if runs:
                runner.run(rest())

    files = ("run/foreign_tasks.py", "run/spending.py", "billing/request_bill.py", "billing/drain.py")
    assert interrupted_at_each_line(files, play) > 20


@pytest.mark.promise("P6")
@pytest.mark.parametrize("vocabulary", [None, Vocabulary("words", lambda text: len(text.split()))])
def test_at_each_line_that_counts_an_answer(vocabulary: Vocabulary | None) -> None:
    """Found with the workload `token_limit`: the end of the run broke off, because the counter was half done."""
    growing, other = Pieces(["Once upon a time " * 9]), Pieces(["{}"])
    whole = [Block("text", Pieces([*growing, "there was a stop. " * 9])), Block("arguments", other, "look")]

    def play(press: Callable[[Callable[[], Any]], Any]) -> None:
        counter = AnswerCounter(vocabulary)
        for blocks in ([Block("text", growing)], whole):
            press(lambda blocks=blocks: counter.catch_up(blocks))
        press(lambda: counter.counted(whole))
        assert counter.counted(whole) == AnswerCounter(vocabulary).counted(whole)

    assert interrupted_at_each_line(("usage/estimate/answer_count.py", "usage/estimate/counting.py"), play) > 20


@pytest.mark.promise("P5")
# A Ctrl-C in the `__init__` of an object with a `__del__`: Python says that the latter failed, which does no harm.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_at_each_line_that_watches_for_the_end_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Found with the workload `two_runs_of_one_agent`: a run without a handle was told that its loop was closed."""

    def play(press: Callable[[Callable[[], Any]], Any]) -> None:
        async def go() -> None:
            run = press(lambda: agent.start("go"))
            if run is not None:
                await run

        agent = Agent(ScriptedModel("Hm."))
        asyncio.run(go())
        assert caplog.text == ""

    assert interrupted_at_each_line(("_threads/loop_end.py",), play) > 5
