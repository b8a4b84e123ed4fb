"""A session that another process has: refuse, queue, steer, cancel_previous, through the store that both share."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quiesce import Agent, Session, tool
from quiesce.conversation.validity import faults
from quiesce.errors import SessionBusy, StoreUnavailable
from quiesce.events import TextDelta
from quiesce.messages import UserMessage
from quiesce.sessions.queue.prompts import QueuedPrompt, QueueRequest, decide_lease
from quiesce.sessions.queue.subscribers import Subscribers
from quiesce.sessions.records import Holder, Lease, SessionInfo, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.sessions.stores.sqlite_listener import SQLiteListener
from quiesce.testing import Call, Say, ScriptedModel, Stall, run_virtual

from .conftest import StoreMaker

pytestmark = pytest.mark.promise("P9", "P8")


def prompts(store: SessionStore) -> list[str]:
    messages = Session("s", store).load_sync()
    assert faults(messages) == ()
    return [each.text for each in messages if isinstance(each, UserMessage)]


async def speaking(run: Any) -> None:
    """Wait until the run has said something."""
    async for event in run:
        if isinstance(event, TextDelta):
            return


async def is_queued(run: Any) -> None:
    """Wait until the run has a place in the line."""
    async with asyncio.timeout(20):
        while run.conversation.position is None:
            await asyncio.sleep(0.005)


def agent(store: SessionStore, *answers: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*answers, then="Yes."), session=Session("s", store), **options)


def test_queue_waits_for_the_other_process_and_keeps_the_order(new_store: StoreMaker) -> None:
    async def main() -> None:
        first = agent(new_store(), [Say("Well"), Stall()]).start("One")
        await speaking(first)
        others = []
        for word in ("Two", "Three", "Four"):
            others.append(agent(new_store(), on_busy="queue").start(word))
            await is_queued(others[-1])
        with pytest.raises(SessionBusy):
            await agent(new_store()).invoke_async("Refused")
        assert not any(run.done for run in others)
        first.cancel("enough")
        assert [(await run).stop_reason for run in others] == ["end_turn"] * 3
        assert prompts(new_store()) == ["One", "Two", "Three", "Four"]

    asyncio.run(main())


def test_cancel_previous_stops_the_other_process_and_those_in_line(new_store: StoreMaker) -> None:
    async def main() -> None:
        busy = agent(new_store(), [Say("Well"), Stall()])
        first = busy.start("One")
        await speaking(first)
        unsaved = busy.start("Behind", on_busy="queue")
        second = agent(new_store(), on_busy="queue").start("Two")
        await is_queued(second)
        third = agent(new_store(), on_busy="cancel_previous").start("Three")
        stopped = [await run for run in (first, unsaved, second)]
        assert [each.stop_reason for each in stopped] == ["cancelled"] * 3
        assert {each.receipt.cause.source for each in stopped} == {"remote"}
        assert [[each.text for each in result.unsent] for result in stopped] == [[], ["Behind"], ["Two"]]
        assert (await third).stop_reason == "end_turn"
        assert prompts(new_store()) == ["One", "Three"]

    asyncio.run(main())


def test_steer_is_said_in_the_run_of_the_other_process(new_store: StoreMaker) -> None:
    async def main() -> None:
        first = agent(new_store(), [Say("The train"), Stall()], "The bus.").start("How?")
        await speaking(first)
        steering = agent(new_store(), on_busy="steer")
        result = await steering.invoke_async("By bus")
        assert (result.stop_reason, result.steered, result.unsent) == ("steered", first.id, ())
        assert result.receipt.saved
        # It was said when that was reported, not only promised.
        assert prompts(new_store()) == ["How?", "By bus"]
        done = await first
        assert done.text == "The bus."
        assert done.unsent == ()
        assert (await steering.invoke_async("And?")).messages[:4] == done.messages

    asyncio.run(main())


def test_steer_that_comes_too_late_is_queued(new_store: StoreMaker) -> None:
    """The holder ends, by itself or by a stop, without having said it: its sender says it, and nobody else."""

    @tool(on_stop="finish", grace=30)
    async def hold() -> str:
        """Take a while."""
        holding.set()
        await release.wait()
        return "held"

    async def main() -> None:
        nonlocal holding, release
        holding, release = asyncio.Event(), asyncio.Event()
        first = Agent(ScriptedModel([Call("hold")]), tools=[hold], session=Session("s", new_store())).start("One")
        await holding.wait()
        second = agent(new_store(), on_busy="steer").start("Two")
        await is_queued(second)
        first.cancel("enough")
        release.set()
        stopped = await first
        assert (stopped.stop_reason, stopped.unsent) == ("cancelled", ())
        assert (await second).stop_reason == "end_turn"
        assert prompts(new_store()) == ["One", "Two"]

    holding = release = asyncio.Event()
    asyncio.run(main())


def test_a_stop_of_one_that_waits_gives_its_place_up(new_store: StoreMaker) -> None:
    async def main() -> None:
        store = new_store()
        first = agent(new_store(), [Say("Well"), Stall()]).start("One")
        await speaking(first)
        second, third = agent(store, on_busy="queue").start("Two"), agent(new_store(), on_busy="queue").start("Three")
        await is_queued(second)
        await is_queued(third)
        second.cancel("changed my mind")
        stopped = await asyncio.wait_for(second, 10)
        assert (stopped.stop_reason, [each.text for each in stopped.unsent]) == ("cancelled", ["Two"])
        first.cancel("enough")
        assert (await third).stop_reason == "end_turn"
        assert prompts(store) == ["One", "Three"]

    asyncio.run(main())


def test_a_steer_that_was_said_is_not_handed_back_by_a_stop(new_store: StoreMaker) -> None:
    """The stop and the answer cross each other: what the conversation has is not in `unsent`."""

    async def main() -> None:
        first = agent(new_store(), [Say("The train"), Stall()], [Say("The bus."), Stall()]).start("How?")
        await speaking(first)
        store = new_store()
        for steps in range(40):
            second = agent(store, on_busy="steer").start("By bus")
            for _ in range(steps):
                await asyncio.sleep(0.001)
            second.cancel("never mind")
            result = await second
            assert bool(result.unsent) != (result.stop_reason == "steered")
            if result.stop_reason == "steered":
                break
            assert "By bus" not in prompts(store)
        first.cancel()
        handed_back = [each.text for each in (await first).unsent]
        assert (prompts(store) + handed_back).count("By bus") == int(result.stop_reason == "steered")

    asyncio.run(main())


def test_answers_to_a_question_do_not_disturb_another_process(new_store: StoreMaker) -> None:
    async def main() -> None:
        first = agent(new_store(), [Say("Well"), Stall()]).start("One")
        await speaking(first)
        with pytest.raises(SessionBusy):
            await agent(new_store(), on_busy="cancel_previous").answer_async({"x": True})
        assert not first.done
        first.cancel()
        await first

    asyncio.run(main())


def test_a_line_does_not_hold_up_its_own_owner_or_a_delete(store: SessionStore) -> None:
    me, you = holder("me"), holder("you")
    position = store.enqueue("s", QueueRequest("queue", you, 60)).result()
    with pytest.raises(SessionBusy):
        store.acquire("s", me, seconds=60).result()
    lease = store.acquire_queued("s", you, position, seconds=60).result().lease
    assert lease.since == position
    store.release(lease).result()
    store.enqueue("s", QueueRequest("queue", you, 60)).result()
    store.delete("s").result()
    assert store.acquire("s", me, seconds=60).result().lease.since == 0


def test_one_who_waits_and_died_is_passed_over(store: SessionStore) -> None:
    here = holder("dead")
    if not here.process:
        pytest.skip("this system does not tell")
    gone = msgspec.structs.replace(here, process=here.process + "0")
    lease = store.acquire("s", holder("me"), seconds=60).result().lease
    store.enqueue("s", QueueRequest("queue", gone, 1000)).result()
    store.enqueue("s", QueueRequest("queue", holder("slow"), -1)).result()
    position = store.enqueue("s", QueueRequest("queue", holder("you"), 60)).result()
    store.release(lease).result()
    taken = store.acquire_queued("s", holder("you"), position, seconds=60).result()
    assert [prompt.sender.owner for prompt in store.queued_prompts(taken.lease).result()] == ["slow"]


# --- The rules of the line, without a store --------------------------------------------------------------------------


def info(held_by: Holder | None = None) -> SessionInfo:
    return SessionInfo("s", "id", 0.0, 0.0, 0, 0, 7, held_by, 10.0)


def prompt(position: int, owner: str = "x", kind: Any = "queue", sent_in: str = "") -> QueuedPrompt:
    return QueuedPrompt(position, kind, holder(owner), 7, 10.0, b"", sent_in)


def test_admission() -> None:
    me = holder("me")
    assert decide_lease(info(), [], me, None).busy is None
    assert decide_lease(info(me), [], me, None).busy is None
    assert decide_lease(info(holder("x")), [], me, None).busy is not None
    assert decide_lease(info(), [prompt(3)], me, None).busy is not None
    assert decide_lease(info(), [prompt(3), prompt(4, "me")], me, 4).busy is not None
    assert decide_lease(info(), [prompt(3, "me"), prompt(4)], me, 3).busy is None
    assert decide_lease(info(), [prompt(3, sent_in="r"), prompt(4, "me")], me, 4).busy is None
    said = decide_lease(info(holder("x")), [prompt(3, "me", "steer", "r")], me, 3)
    assert (said.busy, said.sent_in) == (None, "r")
    overtaken = decide_lease(info(), [prompt(3, "me"), prompt(4, kind="cancel")], me, 3).busy
    assert overtaken is not None
    assert overtaken.overtaken
    assert not getattr(
        decide_lease(info(), [prompt(2, kind="cancel"), prompt(3, "me")], me, 3).busy, "overtaken", False
    )


class Interrupted(MemoryStore):
    """Cannot be read at the moment when the first prompt is in the queue."""

    failed = False

    def queued_prompts(self, lease: Lease) -> Future[list[QueuedPrompt]]:
        found = super().queued_prompts(lease)
        if self.failed or not found.result():
            return found
        self.failed, failing = True, Future[list[QueuedPrompt]]()
        failing.set_exception(StoreUnavailable("The store is away."))
        return failing


@pytest.mark.promise("P1")
def test_a_stop_in_the_queue_is_read_again_when_the_store_failed_for_a_moment() -> None:
    """It was not: the run went on, and the newer prompt waited for it."""

    async def main() -> None:
        store = Interrupted()
        first = agent(store, [Say("Well"), Stall()]).start("One")
        await speaking(first)
        async with asyncio.timeout(60):
            assert (await agent(store, on_busy="cancel_previous").invoke_async("Two")).stop_reason == "end_turn"
        assert (store.failed, (await first).stop_reason) == (True, "cancelled")

    run_virtual(main())


def test_a_change_of_a_file_is_noticed_although_the_first_look_failed(tmp_path: Path) -> None:
    store, subscribers, heard = SQLiteStore(tmp_path / "s.db"), Subscribers(), list[str]()
    subscribers.add("s", lambda: heard.append("s"))
    store.acquire("s", holder("me"), seconds=60).result()
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    listener = SQLiteListener(subscribers, lambda: db)
    listener.check()
    heard.clear()
    store.enqueue("s", QueueRequest("cancel", holder("you"), 60)).result()
    db.set_authorizer(lambda *what: sqlite3.SQLITE_DENY if "letters" in what else sqlite3.SQLITE_OK)
    with pytest.raises(sqlite3.DatabaseError):
        listener.check()
    db.set_authorizer(None)
    listener.check()
    assert heard == ["s"]
    db.close()
    store.close().result()
