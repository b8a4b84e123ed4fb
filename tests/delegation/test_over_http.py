"""Children that stream from a real HTTP server: a stop of the parent closes every connection."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from bench.tree_stop import measure, start_tree, stop_tree

from ..support.sse_server import sse_process


@pytest.mark.promise("P1", "P5")
@pytest.mark.case("langgraph#8029")
def test_a_stop_of_the_parent_closes_every_connection():
    stops = asyncio.run(measure(children=20, trials=3))  # how long that takes: bench/tree_stop.py
    assert [stopped.left_open for stopped in stops] == [0, 0, 0]


@pytest.mark.promise("P5", "P8")
def test_stopping_one_child_closes_one_connection():
    async def main():
        with sse_process() as url:
            async with httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0), timeout=60) as client:
                run = await start_tree(client, url, 5)
                one, *others = run.children
                one.cancel("not you")
                await one.stopped()
                async with httpx2.AsyncClient() as control:
                    report = {"open": 5}
                    while report["open"] > 4:
                        report = (await control.get(f"{url}/report")).json()
                assert report["open"] == 4
                assert not any(other.done for other in others)
                run.cancel()
                await run.stopped()

    asyncio.run(main())


@pytest.mark.promise("P5")
@pytest.mark.case("openai-agents-python#1895")
def test_stops_leave_nothing_in_a_connection_pool():
    async def main():
        with sse_process() as url:
            async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=10), timeout=20) as client:
                for _ in range(4):  # a pool that keeps what was stopped has no room in the second round
                    run = await start_tree(client, url, 10)
                    run.cancel()
                    await run.stopped()
                assert "Requests: 0 active, 0 queued" in repr(client._transport._pool)

    asyncio.run(main())


@pytest.mark.proof
@pytest.mark.promise("P1", "P5")
def test_a_hundred_children_many_times():
    async def main():
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        with sse_process() as url:
            async with httpx2.AsyncClient(limits=limits, timeout=60) as client:
                for _ in range(50):
                    assert (await stop_tree(client, url, 100)).left_open == 0

    asyncio.run(main())
