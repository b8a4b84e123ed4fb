"""A loop that is closed around an active run, and a process that is forked around one: neither leaves a run behind."""

import asyncio
import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable

import pytest

from quiesce import Agent, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.errors import RunError
from quiesce.events import RunEnded
from quiesce.hooks import AfterRun
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall
from quiesce.testing import Gate
from tests.conftest import LOOPS, loop_factory
from tests.support.fake_provider import fake_provider, say_next

pytestmark = pytest.mark.promise("P7", "P8")


def closed_around(agent: Agent, ready: Callable[[], bool], kind: str = "asyncio", **options):
    """A run, and what its loop's tasks were, after its loop was closed in the middle."""
    loop = loop_factory(kind)()

    async def begin():
        run = agent.start("go", **options)
        events = []
        run.tap(events.append)
        while not ready():
            await asyncio.sleep(0)
        return run, events

    run, events = loop.run_until_complete(begin())
    assert not run.done
    loop.close()
    return run, events


def assert_at_rest(agent: Agent, run, events) -> None:
    result = run.wait(0)
    assert result.stop_reason == "cancelled"
    assert (result.receipt.cause.source, result.receipt.cause.reason) == ("shutdown", "The event loop was closed")
    assert [type(each) for each in events].count(RunEnded) == 1
    assert agent.active_runs == ()
    assert faults(agent.messages) == ()
    assert not run.cancel()
    assert agent("again").text == "Fine."


@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_that_is_closed_while_the_model_talks(kind) -> None:
    model = ScriptedModel([Say("Well"), Stall()], then="Fine.")
    agent = Agent(model)
    run, events = closed_around(agent, lambda: agent.active_runs[0].messages[-1].text == "Well", kind)
    assert run.wait(0).text == "Well"
    assert run.wait(0).receipt.still_running == ()
    assert_at_rest(agent, run, events)


# uvloop does not close a loop with an open connection. asyncio warns of it, once the connection is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_while_a_provider_streams() -> None:
    """The run reads the connection itself: what closes it there must not be taken for a failure of the provider."""
    with fake_provider() as address:
        say_next(address, [{"text": "Well", "stalls": True}])
        model = OpenAIChat("m", base_url=f"{address}/v1", api_key="none")
        agent = Agent(model)
        assert model.cancels_at_once
        run, events = closed_around(agent, lambda: agent.active_runs[0].messages[-1].text == "Well")
        assert run.wait(0).text == "Well"
        assert run.wait(0).receipt.still_running == ()
        gc.collect()
        say_next(address, [{"text": "Fine."}])
        assert_at_rest(agent, run, events)


@pytest.mark.parametrize("kind", LOOPS)
def test_a_thread_that_waits_is_woken(kind) -> None:
    agent = Agent(ScriptedModel([Stall()], then="Fine."))
    loop, waiting, results = loop_factory(kind)(), threading.Event(), []

    async def begin():
        run = agent.start("go")
        await asyncio.sleep(0)
        return run

    run = loop.run_until_complete(begin())

    def wait() -> None:
        waiting.set()
        results.append(run.wait(20))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    loop.close()
    thread.join()
    assert [each.stop_reason for each in results] == ["cancelled"]


def test_what_became_of_an_async_tool_is_said() -> None:
    cleaned = []

    @tool
    async def work() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(1)

    agent = Agent(ScriptedModel([Call("work")], then="Fine."), tools=[work])
    run, events = closed_around(agent, lambda: agent.active_runs[0].phase == "acting")
    receipt = run.wait(0).receipt
    assert [(each.name, each.outcome) for each in receipt.calls] == [("work", "cancelled")]
    assert cleaned == [1]
    assert receipt.still_running == ()
    assert_at_rest(agent, run, events)


def test_a_tool_that_cannot_end_without_its_loop_is_unknown() -> None:
    began = []

    @tool
    async def work() -> str:
        began.append(1)
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except GeneratorExit:
                if len(began) == 1:
                    began.append(2)
                    await asyncio.sleep(0)
                raise

    agent = Agent(ScriptedModel([Call("work")], then="Fine."), tools=[work])
    run, events = closed_around(agent, lambda: began)
    assert [each.outcome for each in run.wait(0).receipt.calls] == ["unknown"]
    assert_at_rest(agent, run, events)


def test_a_thread_goes_on_and_its_end_is_recorded() -> None:
    gate, began = Gate(), threading.Event()

    @tool(on_stop="abandon")
    def work() -> str:
        began.set()
        gate.wait()
        return "done"

    agent = Agent(ScriptedModel([Call("work")], then="Fine."), tools=[work])
    run, events = closed_around(agent, began.is_set)
    receipt = run.wait(0).receipt
    assert [each.outcome for each in receipt.calls] == ["abandoned"]
    assert len(receipt.still_running) == 1
    gate.open()
    while not receipt.late:
        threading.Event().wait(0.001)
    assert [(each.name, each.ok) for each in receipt.late] == [("work", True)]
    assert_at_rest(agent, run, events)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")
@pytest.mark.parametrize("kind", LOOPS)
def test_processes_end_with_the_loop(kind, tmp_path) -> None:
    @tool(on_stop="kill")
    def killable(path: str) -> str:
        import time
        from pathlib import Path

        Path(path).write_text(str(os.getpid()))
        time.sleep(1000)
        return "never"

    @tool
    async def program(context: ToolContext, path: str) -> str:
        return (await context.run_process(["sh", "-c", f"echo $$ > {path}; exec sleep 1000"])).stdout

    files = [tmp_path / "one", tmp_path / "two"]
    calls = [Call("killable", {"path": str(files[0])}), Call("program", {"path": str(files[1])})]
    agent = Agent(ScriptedModel(calls, then="Fine."), tools=[killable, program])
    run, events = closed_around(agent, lambda: all(each.exists() and each.read_text().strip() for each in files), kind)
    receipt = run.wait(0).receipt
    assert [each.outcome for each in receipt.calls] == ["killed", "killed"]
    assert receipt.still_running == ()
    for each in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(each.read_text()), 0)
    assert_at_rest(agent, run, events)


def test_runs_that_wait_for_the_conversation_end_too() -> None:
    agent = Agent(ScriptedModel([Stall()], then="Fine."))
    loop = asyncio.new_event_loop()

    async def begin():
        runs = [agent.start("one"), agent.start("two", on_busy="queue")]
        await asyncio.sleep(0)
        return runs

    first, second = loop.run_until_complete(begin())
    loop.close()
    assert first.wait(0).receipt.cause.source == "shutdown"
    assert second.wait(0).receipt.cause.source == "shutdown"
    assert [each.content[0].text for each in second.wait(0).unsent] == ["two"]
    assert agent("again").text == "Fine."


def test_a_child_run_ends_with_its_parent() -> None:
    below = Agent(ScriptedModel([Say("Below"), Stall()], then="Fine."), name="below")
    agent = Agent(ScriptedModel([Call("below", {"prompt": "go"})], then="Fine."), tools=[below.as_tool()])
    run, events = closed_around(agent, lambda: below.active_runs and below.active_runs[0].messages[-1].text == "Below")
    result = run.wait(0)
    assert [each.stop_reason for each in result.children] == ["cancelled"]
    assert below.active_runs == ()
    assert_at_rest(agent, run, events)


@pytest.mark.promise("P7", "P9")
def test_a_session_can_be_used_again(tmp_path) -> None:
    model = ScriptedModel([Say("Well"), Stall()], then="Fine.")
    agent = Agent(model, session="one", store=tmp_path / "store.db")
    run, _ = closed_around(agent, lambda: model.open_streams)
    result = run.wait(0)
    assert (result.stop_reason, result.receipt.saved) == ("cancelled", False)
    assert agent("again").text == "Fine."


def counting_model() -> ScriptedModel:
    model = ScriptedModel([Say("Well"), Stall()], then="Fine.")

    async def count_tokens(request) -> None:
        await asyncio.get_running_loop().create_future()

    model.count_tokens = count_tokens
    return model


def test_nothing_is_looked_up_without_a_loop() -> None:
    agent = Agent(counting_model(), stop_policy="count")
    run, events = closed_around(agent, lambda: agent.active_runs[0].messages[-1].text == "Well")
    assert not run.wait(0).usage.is_provisional
    assert_at_rest(agent, run, events)


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("policy", ["drain", "count"])
def test_what_learns_the_usage_after_a_stop_ends_with_the_loop(kind, policy) -> None:
    agent = Agent(counting_model(), stop_policy=policy)
    loop = loop_factory(kind)()

    async def stopped():
        run = agent.start("go")
        while run.messages[-1].text != "Well":
            await asyncio.sleep(0)
        run.cancel()
        return await run

    result = loop.run_until_complete(stopped())
    assert result.usage.is_provisional
    assert len(agent.config.drain_pool) == 1
    loop.close()
    assert not result.usage.is_provisional
    assert result.receipt.still_running == ()
    assert len(agent.config.drain_pool) == 0
    assert agent("again").text == "Fine."


def test_a_finished_run_is_not_reported_as_stopped() -> None:
    """Only its hooks are still at work."""
    from quiesce.hooks import AfterRun

    agent, called = Agent(ScriptedModel(then="Fine.")), []

    @agent.hook(AfterRun)
    async def slow(event: AfterRun) -> None:
        if not called:
            called.append(1)
            await asyncio.get_running_loop().create_future()

    run, events = closed_around(agent, lambda: called)
    assert (run.wait(0).stop_reason, run.wait(0).text) == ("end_turn", "Fine.")
    assert [type(each) for each in events].count(RunEnded) == 1
    assert agent("again").text == "Fine."


# --- Forks ------------------------------------------------------------------------------------------------------------


def in_a_fork(check: Callable[[], None]) -> str:
    """What a forked child says about itself; nothing when all is well there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            check()
            said = ""
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_part_in_the_runs_of_its_parent() -> None:
    model = ScriptedModel([Say("Well"), Stall()], then="Fine.")
    agent, events = Agent(model), []
    run = agent.start("go")
    run.tap(events.append)
    while not model.open_streams or run.messages[-1].text != "Well":
        threading.Event().wait(0.001)

    def in_the_child() -> None:
        heard = len(events)
        assert run.done
        with pytest.raises(RunError, match="forked"):
            run.wait(5)
        assert not run.cancel()
        assert agent.active_runs == ()
        assert faults(agent.messages) == ()
        assert agent("again").text == "Fine."
        assert len(events) == heard, "the readers are the parent's"

    assert in_a_fork(in_the_child) == ""
    assert not run.done
    run.cancel("enough")
    assert run.wait(20).receipt.cause.reason == "enough"
    assert agent("again").text == "Fine."


@pytest.mark.promise("P6", "P8")
@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.parametrize("policy", ["drain", "count"])
def test_a_forked_child_does_not_wait_for_the_usage_that_its_parent_learns(policy: str) -> None:
    agent = Agent(counting_model(), stop_policy=policy)
    loop = asyncio.new_event_loop()

    async def stopped():
        run = agent.start("go")
        while run.messages[-1].text != "Well":
            await asyncio.sleep(0)
        run.cancel()
        return await run

    result = loop.run_until_complete(stopped())

    def in_the_child() -> None:
        assert not result.usage.is_provisional
        assert len(agent.config.drain_pool) == 0
        assert agent("again").text == "Fine."

    assert in_a_fork(in_the_child) == ""
    assert result.usage.is_provisional
    assert len(agent.config.drain_pool) == 1
    loop.close()


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
async def test_a_fork_inside_the_loop_of_the_run() -> None:
    @tool
    async def forks() -> str:
        def in_the_child() -> None:
            assert agent.active_runs == ()
            assert agent("again").text == "Fine."

        return in_a_fork(in_the_child) or "all is well"

    model = ScriptedModel([Call("forks")], then="Fine.")
    agent = Agent(model, tools=[forks])
    result = await agent.invoke_async("go")
    assert result.stop_reason == "end_turn"
    assert [each.text for each in result.messages[-2].results] == ["all is well"]


@pytest.mark.promise("P5")
def test_the_last_hooks_end_with_the_loop() -> None:
    tasks, ended = [], []

    async def wait(event: AfterRun) -> None:
        tasks.append(asyncio.current_task())
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")

    async def go() -> None:
        agent.start("go")
        while not tasks:
            await asyncio.sleep(0)

    agent = Agent(ScriptedModel("Hm."), hooks=[wait])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(go())
    loop.close()
    assert ended == ["ended"]
