"""A stop closes the connection, at once, and the pool stays usable."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from typing import Any

import httpx2
import pytest

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.events import Event, StopRequested, TextDelta
from quiesce.messages import Text, UserMessage
from quiesce.models.base import Model, ModelRequest
from quiesce.run.handle import Run

from .recordings import ANSWER, PROVIDERS, Provider
from .wire import Play, Wire, chunk, head, wire

pytestmark = pytest.mark.promise("P1", "P5")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)
OWN: dict[str, Any] = {}
FOREIGN: dict[str, Any] = {"http_client": lambda: httpx2.AsyncClient(timeout=30)}
each_transport = pytest.mark.parametrize("client", [OWN, FOREIGN], ids=["own", "httpx2"])


def endless(provider: Provider) -> Play:
    """An answer that goes on saying something for as long as somebody listens."""
    recording = provider.answer
    place = next(index for index, event in enumerate(recording.events) if b"The sky" in event)
    start = b"".join(chunk(event) for event in recording.events[: place + 1])
    return Play(head(recording.content_type) + start, then="flood", more=chunk(recording.events[place]), pause=0.001)


async def first_words(run: Run) -> None:
    async for event in run.events():
        if isinstance(event, TextDelta):
            return


async def stop_in_mid_answer(agent: Agent) -> list[Event]:
    """Returns the events that came after the stop."""
    run = agent.start("What colour?")
    await first_words(run)
    after: list[Event] = []
    run.cancel()
    run.tap(after.append)
    receipt = await run.stopped()
    assert receipt.stop_reason == "cancelled"
    assert not receipt.still_running
    assert not faults(agent.messages)
    assert receipt.usage.entries[-1].ended in ("hung_up", "drained")
    return after


def sockets_open() -> int:
    gc.collect()
    names = (
        os.readlink(f"/proc/self/fd/{each}")
        for each in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{each}")
    )
    return sum(name.startswith("socket:") for name in names)


@each_provider
@pytest.mark.case("strands#3992", "strands#3224", "openai-agents-python#1895", "open-webui#1166")
async def test_the_server_sees_the_stop(provider: Provider) -> None:
    async with wire(endless(provider), provider.answer.response) as server:
        agent = Agent(provider.make(server.url, stop_policy="hang_up"))
        after = await stop_in_mid_answer(agent)
        await server.all_gone()
        assert len(server.hang_ups) == 1
        assert server.stray_bytes == 0
        # Nothing that the model said after the stop was taken.
        seen = [type(event) for event in after]
        assert TextDelta not in seen[seen.index(StopRequested) :]
        assert (await agent.invoke_async("Go on.")).text == ANSWER


@each_provider
@each_transport
@pytest.mark.case("openai-agents-python#2222")
def test_leaving_the_context_closes_the_connection(provider: Provider, client: dict[str, Any]) -> None:
    """In every way: by `break`, by an exception, by a cancellation, and by one that comes while it is being left."""

    async def read(server: Wire, how: str) -> None:
        model = provider.make(server.url, **client)
        request = ModelRequest((UserMessage((Text("Hello?"),)),))
        async with model.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    if how == "break":
                        break
                    if how == "error":
                        raise ZeroDivisionError
                    if how == "twice":
                        task = asyncio.current_task()
                        assert task is not None
                        asyncio.get_running_loop().call_soon(task.cancel)
                        break

    async def main() -> None:
        async with wire(otherwise=endless(provider)) as server:
            for how in ("break", "error", "twice", "cancel"):
                task = asyncio.create_task(read(server, how))
                if how == "cancel":
                    while not server.open:
                        await asyncio.sleep(0)
                    await asyncio.sleep(0.01)
                    task.cancel()
                await asyncio.wait([task])
                async with asyncio.timeout(5):
                    await server.all_gone()
                # Closing a connection of our own takes no pass of the loop, so that the task may have ended before.
                if how != "twice" or client is FOREIGN:
                    assert task.cancelled() == (how in ("cancel", "twice"))
                if how == "error":
                    assert isinstance(task.exception(), ZeroDivisionError)

    asyncio.run(main())


@each_provider
@each_transport
def test_a_second_cancellation_while_the_first_is_obeyed(provider: Provider, client: dict[str, Any]) -> None:
    """At each of the steps that closing takes: the connection is closed, and the next request works."""

    async def read(model: Model) -> None:
        async with model.stream(ModelRequest((UserMessage((Text("Hello?"),)),))) as deltas:
            async for _ in deltas:
                pass

    async def main() -> None:
        async with wire(otherwise=endless(provider)) as server:
            model = provider.make(server.url, **client)
            before = sockets_open()
            for steps in range(12):
                server.waiting.clear()
                task = asyncio.create_task(read(model))
                await server.waiting.wait()
                task.cancel()
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                async with asyncio.timeout(5):
                    await server.all_gone()
            assert sockets_open() <= before
            server.otherwise = Play(provider.answer.response)
            assert (await Agent(model).invoke_async("Still there?")).text == ANSWER

    asyncio.run(main())


async def many_cuts(provider: Provider, client: dict[str, Any], in_a_row: int, at_once: int) -> None:
    async with wire(otherwise=endless(provider)) as server:
        model = provider.make(server.url, stop_policy="hang_up", **client)
        await stop_in_mid_answer(Agent(model))
        await server.all_gone()
        before, tasks = sockets_open(), len(asyncio.all_tasks())
        for _ in range(in_a_row):
            await stop_in_mid_answer(Agent(model))
        await asyncio.gather(*(stop_in_mid_answer(Agent(model)) for _ in range(at_once)))
        await server.all_gone()
        assert len(server.hang_ups) == 1 + in_a_row + at_once
        assert server.stray_bytes == 0
        assert sockets_open() <= before
        assert len(asyncio.all_tasks()) <= tasks
        server.otherwise = Play(provider.answer.response)
        assert (await Agent(model).invoke_async("Still there?")).text == ANSWER


@each_provider
@each_transport
@pytest.mark.case("openai-agents-python#1895")
def test_many_cut_streams(provider: Provider, client: dict[str, Any]) -> None:
    asyncio.run(many_cuts(provider, client, 30, 20))


@pytest.mark.proof
@each_provider
@each_transport
@pytest.mark.case("openai-agents-python#1895")
def test_500_cut_streams_in_a_row_and_200_at_once(provider: Provider, client: dict[str, Any]) -> None:
    asyncio.run(many_cuts(provider, client, 500, 200))


@each_provider
@pytest.mark.promise("P8")
def test_one_model_in_several_loops(provider: Provider) -> None:
    """Connections belong to a loop. A model that is used in one loop after another, and sync, has a client in each."""

    async def main(model: object, server: Wire) -> None:
        assert (await Agent(model).invoke_async("Hello?")).text == ANSWER  # type: ignore[arg-type]

    async def outer() -> None:
        async with wire(otherwise=provider.answer.response) as server:
            model = provider.make(server.url)
            await main(model, server)
            await asyncio.to_thread(lambda: asyncio.run(main(model, server)))
            await asyncio.to_thread(lambda: asyncio.run(main(model, server)))
            assert (await asyncio.to_thread(lambda: Agent(model)("Hello?"))).text == ANSWER

    asyncio.run(outer())
    from quiesce._threads.background_loop import close_portals

    close_portals()


@each_provider
@pytest.mark.promise("P5")
async def test_a_model_that_is_dropped_in_a_running_loop_closes_its_connections(provider: Provider) -> None:
    """And not the garbage collector, which would warn of them."""
    async with wire(provider.answer.response) as server:
        model = provider.make(server.url)
        await Agent(model).invoke_async("Hello?")
        assert server.open == 1  # kept, for the next request
        del model
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            while server.open:
                gc.collect()
                await asyncio.sleep(0.001)
        assert [str(each.message) for each in found if each.category is ResourceWarning] == []
