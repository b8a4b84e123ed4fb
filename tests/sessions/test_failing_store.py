"""A store that fails, heals, hangs, or is somebody else's by now: what the run makes of it."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from quiesce import Agent, Conversation, Session, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.errors import LeaseLost, StoreError, StoreFull, StoreUnavailable
from quiesce.events import RunEnded, StoreFailed, TextDelta
from quiesce.messages import Outcome
from quiesce.run.handle import wait_for
from quiesce.sessions.journal.delivery import EventDelivery
from quiesce.sessions.journal.rows import decode_row
from quiesce.sessions.records import Lease, WriteBatch, holder
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Call, Pause, Say, ScriptedModel, Stall, run_virtual

from .faulty_store import FaultyStore, pass_on
from .kit import echo, stored

pytestmark = pytest.mark.promise("P9")


class Failing(MemoryStore):
    """Fails, or hangs, from the n-th write on."""

    def __init__(self, at: int, error: StoreError | None, times: int = 10**9) -> None:
        super().__init__()
        self.left = at
        self.error = error
        self.times = times
        self.hung: list[Future[int]] = []

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        self.left -= 1
        if self.left >= 0 or self.times <= 0:
            return super().write(lease, batch)
        self.times -= 1
        failed: Future[int] = Future()
        if self.error is None:
            self.hung.append(failed)
        else:
            failed.set_exception(self.error)
        return failed


def script() -> ScriptedModel:
    return ScriptedModel([Say("One two three. ", pause=0.1), Call("echo", {"word": "w"})], Say("The end.", pause=0.1))


def test_a_run_that_goes_on_in_memory_delivers_each_chunk_without_copying_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[int] = []
    deliver = EventDelivery.deliver

    def counting(self: EventDelivery, entries: list[Any], first: int, marks: list[int] | None = None) -> None:
        handled.append(len(entries))
        deliver(self, entries, first, marks)

    monkeypatch.setattr(EventDelivery, "deliver", counting)

    async def main() -> None:
        model = ScriptedModel(Say("word " * 300, chunk=5))
        agent = Agent(model, session=Session("s", Failing(0, StoreFull("no room")), on_store_failure="continue"))
        events = [event async for event in agent.stream_async("Go")]
        assert sum(isinstance(event, TextDelta) for event in events) == 300
        assert sum(handled) < 10 * len(events)

    run_virtual(main())


@pytest.mark.parametrize("at", range(8))
def test_a_store_that_is_full_stops_the_run_with_a_typed_error(at: int) -> None:
    async def main() -> None:
        store = Failing(at, StoreFull("no room"))
        agent = Agent(script(), tools=[echo], session=Session("s", store))
        events: list[Any] = []
        with pytest.raises(StoreFull) as failure:
            async for event in agent.stream_async("Go"):
                events.append(event)
        result = failure.value.result
        assert result is not None
        assert result.stop_reason == "error"
        assert result.receipt.saved is False
        assert isinstance(events[-1], RunEnded)
        assert faults(result.messages) == ()
        kept = agent.messages[:-1]  # and a note, so that a prompt may follow
        assert kept == stored(store)[: len(kept)]
        store.left = 10**9
        agent.config.model._answers = iter(["Better."])  # type: ignore[attr-defined]
        again = await agent.invoke_async("Again")
        assert again.receipt.saved
        assert faults(stored(store)) == ()
        assert stored(store) == again.messages

    run_virtual(main())


@pytest.mark.promise("P7", "P9")
def test_a_finished_run_whose_last_write_fails_has_failed() -> None:
    async def main() -> None:
        store = Failing(10**9, StoreFull("no room"))
        agent = Agent(script(), tools=[echo], session=Session("s", store))
        before = store.left
        await agent.invoke_async("Go")
        last = before - store.left - 1
        failing = Failing(last, StoreFull("no room"))
        run = Agent(script(), tools=[echo], session=Session("s", failing)).start("Go")
        with pytest.raises(StoreFull) as failure:
            await run
        result = failure.value.result
        assert result is not None
        assert (result.stop_reason, result.error, result.parsed) == ("error", failure.value, ())
        assert (result.text, result.receipt.saved) == ("The end.", False)
        assert "no room" in result.receipt.unsaved

    run_virtual(main())


def test_a_finished_run_waits_for_a_store_that_is_slow_as_long_as_a_save_may_take() -> None:
    class Slow(MemoryStore):
        def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
            answer: Future[int] = Future()
            asyncio.get_running_loop().call_later(4, pass_on, super().write(lease, batch), answer)
            return answer

    async def main() -> None:
        result = await Agent(ScriptedModel("One."), session=Session("s", Slow())).invoke_async("Go")
        assert (result.stop_reason, result.receipt.saved) == ("end_turn", True)

    run_virtual(main())


@pytest.mark.parametrize("at", range(8))
def test_or_goes_on_in_memory_and_says_so(at: int) -> None:
    async def main() -> None:
        store = Failing(at, StoreFull("no room"))
        agent = Agent(script(), tools=[echo], session=Session("s", store, on_store_failure="continue"))
        events = [event async for event in agent.stream_async("Go")]
        assert sum(isinstance(event, StoreFailed) for event in events) <= 1
        ended = events[-1]
        assert isinstance(ended, RunEnded)
        assert ended.stop_reason == "end_turn"
        assert ended.receipt.saved is False
        assert "no room" in ended.receipt.unsaved
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One two three. The end."
        assert len(agent.messages) == 4
        store.left = 10**9
        agent.config.model._answers = iter(["Better."])  # type: ignore[attr-defined]
        again = await agent.invoke_async("Again")
        assert again.receipt.saved
        assert stored(store) == again.messages
        assert len(again.messages) == 6

    run_virtual(main())


def test_a_store_that_heals_in_time_is_not_noticed() -> None:
    async def main() -> None:
        store = Failing(2, StoreUnavailable("restarting"), times=4)
        agent = Agent(script(), tools=[echo], session=Session("s", store))
        events = [event async for event in agent.stream_async("Go")]
        assert events[-1].receipt.saved
        assert stored(store) == agent.messages
        assert not any(isinstance(event, StoreFailed) for event in events)

    run_virtual(main())


def test_a_run_that_went_on_in_memory_is_saved_when_the_store_is_back() -> None:
    async def main() -> None:
        store = Failing(2, StoreFull("no room"), times=1)
        agent = Agent(
            ScriptedModel([Say("One. ", pause=0.1), Pause(30), Say("Two.", pause=0.1)]),
            session=Session("s", store, on_store_failure="continue"),
        )
        events = [event async for event in agent.stream_async("Go")]
        assert any(isinstance(event, StoreFailed) for event in events)
        assert events[-1].receipt.saved
        assert stored(store) == agent.messages
        rows = [
            decode_row(row.payload) for row in store.rows("s", store.runs("s").result()[0].run_id, marks=True).result()
        ]
        assert "".join(row.text for row in rows if isinstance(row, TextDelta)) == "One. Two."

    run_virtual(main())


@pytest.mark.parametrize("at", range(6))
def test_a_stop_waits_for_a_hung_store_no_longer_than_its_bound(at: int) -> None:
    async def main() -> None:
        store = Failing(at, None)
        run = Agent(script(), tools=[echo], session=Session("s", store)).start("Go")
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        asked = loop.time()
        run.cancel("enough")
        result = await run
        assert loop.time() - asked <= 4.5
        assert result.receipt.saved is False
        assert "did not answer" in result.receipt.unsaved
        assert "NOT SAVED" in str(result.receipt)

    run_virtual(main())


def test_a_writer_that_was_fenced_off_ends_with_lease_lost() -> None:
    async def main() -> None:
        store = MemoryStore()
        model = ScriptedModel([Say("One. ", pause=0.1), Pause(5), Say("Two. ", pause=0.1), Call("echo", {"word": "w"})])
        session = Session("s", store, on_store_failure="continue")
        run = Agent(model, tools=[echo], session=session).start("Go")
        await asyncio.sleep(2)
        store._sessions["s"].expires = 0.0
        thief = store.acquire("s", holder("thief"), seconds=1000).result()
        with pytest.raises(LeaseLost):
            await run
        assert store.load("s").result().info.fence == thief.lease.fence
        rows = [decode_row(row.payload) for row in store.rows("s", run.id).result()]
        texts = [row.text for row in rows if isinstance(row, TextDelta)]
        assert "Two" not in "".join(texts)

    run_virtual(main())


@pytest.mark.parametrize("at", range(4))
@pytest.mark.promise("P3")
def test_a_prompt_that_was_accepted_is_returned_when_the_last_save_fails(at: int) -> None:
    """The result is written a second time then; what the inbox held is in it all the same."""

    async def main() -> None:
        store = Failing(10**9, StoreFull("no room"))
        model = ScriptedModel([Say("One two three.", pause=0.1), Pause(60)], then="Later.")
        run = Agent(model, session=Session("s", store)).start("Go")
        async for event in run:
            if isinstance(event, TextDelta) and run.enqueue("And this"):
                store.left = at
                run.cancel("enough")
        result = await wait_for(run)
        said = [message.text for message in result.messages]
        unsent = [message.text for message in result.unsent]
        assert [*said, *unsent].count("And this") == 1

    run_virtual(main())


def test_after_a_write_that_was_repeated_readers_get_what_comes_at_once() -> None:
    async def main() -> None:
        store = Failing(0, StoreUnavailable("away"), times=1)
        run = Agent(ScriptedModel([Say("One "), Stall()]), session=Session("s", store)).start("Go")
        async with asyncio.timeout(60):
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        assert store.times == 0, "no write has failed"
        run.cancel("enough")
        result = await run
        assert result.text == "One "
        assert result.receipt.saved

    run_virtual(main())


@pytest.mark.promise("P2")
@pytest.mark.parametrize("at", range(9))
def test_what_is_left_of_a_run_that_could_not_be_saved_can_start_another_agent(at: int) -> None:
    async def main() -> None:
        model = ScriptedModel([Call("echo", {"word": "a"})], [Call("echo", {"word": "b"})], Say("The end.", pause=0.1))
        agent = Agent(model, tools=[echo], session=Session("s", Failing(at, StoreFull("no room"))))
        with suppress(StoreError):
            await agent.invoke_async("Go")
        assert faults(agent.messages) == ()
        other = Agent(ScriptedModel("Hello."), conversation=Conversation(agent.messages))
        assert (await other.invoke_async("And now?")).text == "Hello."

    run_virtual(main())


@pytest.mark.promise("P5")
def test_a_recovery_that_fails_after_its_time_is_not_logged_as_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = MemoryStore()
        crashed = FaultyStore(store)
        run = Agent(ScriptedModel([Say("One."), Stall()]), session=Session("s", crashed)).start("Go")
        async for event in run:
            if isinstance(event, TextDelta):
                crashed.dead = True
                run.cancel("gone")
        store._sessions["s"].expires = 0.0
        slow = FaultyStore(store)
        slow.usual = "late"
        with pytest.raises(StoreUnavailable):
            await Agent(ScriptedModel("Two."), session=Session("s", slow)).invoke_async("Go")
        store._sessions["s"].expires = 0.0
        store.acquire("s", holder("thief"), seconds=1000).result()
        slow.land()
        await asyncio.sleep(1)

    run_virtual(main())
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.promise("P4", "P7")
def test_a_call_that_waits_for_another_does_not_begin_when_the_store_fails_meanwhile() -> None:
    """Found by the soak: the run had failed, its last tool was awaited, and the next one began."""

    async def main() -> None:
        store, begun = Failing(10**9, StoreFull("no room")), list[str]()

        @tool(sequential=True, on_stop="finish", grace=5)
        async def first(ctx: ToolContext) -> str:
            begun.append("first")
            store.left = 0
            ctx.report("half")
            await asyncio.sleep(1)
            return "done"

        @tool(sequential=True)
        async def second() -> str:
            begun.append("second")
            await asyncio.sleep(1)
            return "done"

        model = ScriptedModel([Call("first"), Call("second")], "The end.")
        run = Agent(model, tools=[first, second], session=Session("s", store)).start("Go")
        with pytest.raises(StoreFull) as failure:
            await run
        assert begun == ["first"]
        assert failure.value.result is not None
        outcomes = [call.outcome for call in failure.value.result.receipt.calls]
        assert outcomes == [Outcome.COMPLETED, Outcome.NEVER_STARTED]

    run_virtual(main())


@pytest.mark.promise("P1", "P5")
def test_a_stop_waits_a_moment_for_prompts_of_others_to_be_returned_and_leaves_nothing_behind() -> None:
    class Silent(MemoryStore):
        def return_prompts(self, lease: Lease, positions: tuple[int, ...]) -> Future[tuple[int, ...]]:
            return Future()

    async def main() -> None:
        holding, release = asyncio.Event(), asyncio.Event()

        @tool(on_stop="finish", grace=30)
        async def hold() -> str:
            """Take a while."""
            holding.set()
            await release.wait()
            return "held"

        store = Silent()
        first = Agent(ScriptedModel([Call("hold")]), tools=[hold], session=Session("s", store)).start("One")
        await holding.wait()
        second = Agent(ScriptedModel(then="Yes."), session=Session("s", store), on_busy="steer").start("Two")
        while second.conversation.position is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)  # in virtual time: the first run has heard of it
        began = asyncio.get_running_loop().time()
        first.cancel("enough")
        release.set()
        assert (await first).stop_reason == "cancelled"
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)
        assert "returning prompts" not in [task.get_name() for task in asyncio.all_tasks()]
        second.cancel("enough")
        await second

    run_virtual(main())


class Mistaken(MemoryStore):
    """A store of one's own with a mistake: it raises what is no `StoreError`."""

    def acquire(self, *args: Any, **options: Any) -> Future[Any]:
        raise TypeError("a mistake in the store")


@pytest.mark.promise("P7")
def test_a_store_with_a_mistake_fails_the_run_which_is_not_reported_as_cancelled() -> None:
    run = run_virtual(_start_and_wait(Agent(ScriptedModel("Never."), session=Session("s", Mistaken()))))
    result = run.inspect().result
    assert result is not None
    assert (result.stop_reason, [each.text for each in result.unsent]) == ("error", ["Go"])
    assert isinstance(result.error, StoreError)
    assert "a mistake in the store" in result.error.detail


async def _start_and_wait(agent: Agent) -> Any:
    run = agent.start("Go")
    await run.stopped()
    return run
