"""Workloads of two agents that share a session through a store, as two processes do: each stopped at every point."""

from __future__ import annotations

import asyncio

from quiesce import Agent, Run, Session
from quiesce.conversation.validity import faults
from quiesce.messages import UserMessage
from quiesce.sessions.journal.rows import decode_messages
from quiesce.sessions.queue.waiting import OnBusy
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Harness, Say, ScriptedModel
from tests.injection.registry import Workloads

WORKLOADS = Workloads()
workload = WORKLOADS.add


class Neighbours:
    """Two agents, each with a session of its own on one store, as two processes have. What is said is said once."""

    def __init__(self, harness: Harness) -> None:
        self._store = MemoryStore()
        self._runs: list[Run] = []
        self._harness = harness
        self.one = self.agent(pause=0.2)
        harness.on_close(self._check)

    def agent(self, pause: float = 0.1) -> Agent:
        # Both are brief: the kit prompts each again, and they would have to wait for each other.
        model = ScriptedModel(then=Say("The same to all.", chunk=4, pause=pause))
        return Agent(model, session=Session("s", self._store, wait=60))

    def start(self, agent: Agent, prompt: str, *, target: bool, on_busy: str = "refuse") -> Run:
        """The other one is not watched by the kit: when the first is stopped, it may end in another way than else."""
        if target or not self._runs:
            run = self._harness.start(agent, prompt, target=target, on_busy=on_busy)
        else:
            run = agent.start(prompt, on_busy=on_busy)  # pyright: ignore[reportArgumentType]
        self._runs.append(run)
        return run

    def _check(self) -> None:
        snapshot = self._store.load("s").result()
        assert not snapshot.unfinished, "P9: a run that has ended is not marked so"
        assert snapshot.info.holder is None, "P9: the lease was not given back"
        messages = decode_messages(snapshot.messages)
        assert faults(messages) == (), "P2"
        said = [part.text for each in messages if isinstance(each, UserMessage) for part in each.content]
        results = [run.inspect().result for run in self._runs]
        unsent = [each.text for result in results if result is not None for each in result.unsent]
        for words in ("One", "Two")[: len(self._runs)]:
            assert (said + unsent).count(words) == 1, f"P3: {words!r} is said {said.count(words)} times; {unsent}"


async def second_is_stopped(harness: Harness, on_busy: OnBusy) -> None:
    """The one who comes while another has the session is the one who is stopped."""
    both = Neighbours(harness)
    first = both.start(both.one, "One", target=False)
    await asyncio.sleep(0.3)
    second = both.start(both.agent(), "Two", target=True, on_busy=on_busy)
    for run in (first, second):
        await run


@workload
async def one_in_line_is_stopped(harness: Harness) -> None:
    await second_is_stopped(harness, "queue")


@workload
async def one_whose_words_are_said_elsewhere_is_stopped(harness: Harness) -> None:
    await second_is_stopped(harness, "steer")


@workload
async def one_that_is_steered_from_elsewhere_is_stopped(harness: Harness) -> None:
    both = Neighbours(harness)
    first = both.start(both.one, "One", target=True)
    await asyncio.sleep(0.3)
    async with both.start(both.agent(), "Two", target=False, on_busy="steer") as second:
        for run in (first, second):
            await run.stopped()


@workload
async def one_that_is_stopped_from_elsewhere(harness: Harness) -> None:
    both = Neighbours(harness)
    harness.expect_cause("remote")
    first = both.start(both.one, "One", target=True)
    await asyncio.sleep(0.3)
    async with both.start(both.agent(), "Two", target=False, on_busy="cancel_previous") as second:
        for run in (first, second):
            await run.stopped()
