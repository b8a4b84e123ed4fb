"""Hosts in network namespaces: the link between a worker or a replica and the database is cut, and mended."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from quiesce.conversation.validity import faults
from quiesce.events import RunEnded
from quiesce.messages import Outcome, ToolMessage
from quiesce.sessions import Session

from ..docs.pages import ROOT
from .agents import WITNESS
from .conftest import FleetUnderTest, with_fleet
from .namespaces import Cut, Host, Network, PostgresOnHost, why_not
from .processes import WorkerProcess, witnessed

pytestmark = [pytest.mark.proof, pytest.mark.timeout(240), pytest.mark.promise("P4", "P9")]

LEASE = 6.0
# A statement on a link that is cut gives up after 10 s, and a new connection after 5 s.
BOUND = 16.0


class Place:
    """Hosts and a database; it listens on the address of a host of its own."""

    def __init__(self) -> None:
        self.network = Network()
        self.here, self.there = self.network.host("here"), self.network.host("there")
        self.postgres = PostgresOnHost(self.network.host("database"))

    def close(self) -> None:
        self.postgres.close()
        self.network.close()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    missing = why_not()
    if missing:
        pytest.skip(missing)
    made = Place()
    yield made
    made.close()


class Hosted:
    """A database, and workers on the hosts."""

    def __init__(self, place: Place, witness: Path) -> None:
        self.here, self.there = place.here, place.there
        self.witness = witness
        self.url = place.postgres.new_database()
        self.address = place.postgres.address(self.url)
        self._workers: list[WorkerProcess] = []

    def worker(self, host: Host) -> WorkerProcess:
        self._workers.append(WorkerProcess(self.address, self.witness, lease=LEASE, within=host.command))
        return self._workers[-1]

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@pytest.fixture
def hosted(place: Place, tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(place, tmp_path / "witness")
    yield made
    made.close()


async def conversation(fleet: FleetUnderTest, session: str) -> tuple[Any, ...]:
    messages = await Session(session, fleet.fleet.store).load()
    assert not faults(messages)
    return tuple(messages)


async def ended_once(fleet: FleetUnderTest, run_id: str) -> None:
    events = [each async for each in fleet.fleet.events(run_id)]
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    assert sum(isinstance(event, RunEnded) for _, event in events) == 1


@pytest.mark.parametrize("how", ["down", "silent"])
def test_a_worker_that_is_cut_off_stops_its_runs_and_another_goes_on(hosted: Hosted, how: Cut) -> None:
    here = hosted.here

    async def test(fleet: FleetUnderTest) -> None:
        first = hosted.worker(here)
        short = await fleet.submit("work:600 the end", session="ann/short")
        await fleet.until(short.id, "tool_started")
        await stop_in_a_short_cut(fleet, here, how, short.id)
        hosted.witness.unlink()

        run = await fleet.submit("work:600 the end")
        stopped = await fleet.submit("work:600 the end", session="ann/stopped")
        for each in (run, stopped):
            await fleet.until(each.id, "tool_started")
        hosted.worker(hosted.there)
        async with asyncio.timeout(100):
            while len(await fleet.fleet.workers()) < 2:
                await asyncio.sleep(0.05)

        cut_at = here.cut(how)
        stop = await fleet.fleet.stop(stopped.id, "asked while the link is cut")
        assert stop is not None
        assert (stop.accepted, stop.delivered, stop.at_rest) == (True, False, False)

        crashed = await fleet.rest(run.id)
        following = await fleet.rest(crashed.restarted_as)
        taken_after = time.monotonic() - cut_at
        assert (crashed.state, following.reason, following.losses) == ("crashed", "end_turn", 1)
        ended = await fleet.rest(stopped.id)
        assert (ended.state, ended.restarted_as) == ("crashed", "")
        stops = [each for each in witnessed(hosted.witness) if each[1] == "stopped"]
        assert {each[2] for each in stops} == {run.id, stopped.id}
        assert {each[0] for each in stops} == {first.process.pid}
        stopped_after = max(each[4] for each in stops) - cut_at  # type: ignore[misc]
        print(f"{how}: the worker stopped its runs after {stopped_after:.1f} s; taken over after {taken_after:.1f} s")
        assert stopped_after < LEASE

        before = [await conversation(fleet, session) for session in ("ann/s", "ann/stopped")]
        here.mend(how)
        await until_back(fleet, first)
        other = await fleet.submit("work:0 bye", session="ann/other")
        assert (await fleet.rest(other.id)).reason == "end_turn"
        assert await asyncio.to_thread(first.terminate) == 0
        assert [await conversation(fleet, session) for session in ("ann/s", "ann/stopped")] == before
        for each in (short.id, run.id, following.id, stopped.id):
            await ended_once(fleet, each)
        (results,) = [each.results for each in before[0] if isinstance(each, ToolMessage)]
        assert [each.outcome for each in results] == [Outcome.UNKNOWN]

    with_fleet(hosted.url, test)
    starts = [each[2:4] for each in witnessed(hosted.witness) if each[1] == "start"]
    assert len(starts) == len(set(starts)) == 3


async def until_back(fleet: FleetUnderTest, worker: WorkerProcess) -> None:
    """Wait until the heartbeat of a worker, which was cut off, is there again."""
    begun = time.monotonic()
    async with asyncio.timeout(BOUND):
        while worker.process.pid not in [each.pid for each in await fleet.fleet.workers() if not each.is_lost]:
            await asyncio.sleep(0.05)
    print(f"the worker is back {time.monotonic() - begun:.1f} s after its link")


async def stop_in_a_short_cut(fleet: FleetUnderTest, host: Host, how: Cut, run_id: str) -> None:
    """A cut that is shorter than the lease: the worker keeps its run, and the stop reaches it when the link is back."""
    host.cut(how)
    stop = await fleet.fleet.stop(run_id, "asked while the link is cut")
    assert stop is not None
    assert (stop.accepted, stop.delivered) == (True, False)
    await asyncio.sleep(LEASE / 4)
    host.mend(how)
    mended = time.monotonic()
    ended = await fleet.rest(run_id)
    print(f"{how}: at rest {time.monotonic() - mended:.1f} s after a short cut")
    assert (ended.state, ended.reason, ended.attempt) == ("ended", "cancelled", 1)
    assert ended.receipt is not None
    assert ended.receipt.cause is not None
    assert ended.receipt.cause.reason == "asked while the link is cut"


@contextmanager
def replica(hosted: Hosted, host: Host) -> Iterator[Callable[..., tuple[int, Any, float]]]:
    """`quiesce serve --fleet` on a host; gives a function that sends it a request, from the same host."""
    command = [*host.command, sys.executable, "-m", "quiesce.cli", "serve", "tests.fleet.agents:agent", "--fleet"]
    with hosted.witness.with_suffix(".replica").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--store", hosted.address, "--log-level", "error"], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, WITNESS: str(hosted.witness)},
        )  # fmt: skip

        def ask(method: str, path: str, **options: Any) -> tuple[int, Any, float]:
            begun = time.monotonic()
            with httpx2.Client(base_url="http://127.0.0.1:8765", timeout=60) as client:
                answer = client.request(method, path, **options)
            return answer.status_code, answer.text, time.monotonic() - begun

        try:
            yield lambda *words, **options: host.call(lambda: ask(*words, **options))
        finally:
            process.terminate()
            assert process.wait(60) == 0
    assert "Traceback" not in hosted.witness.with_suffix(".replica").read_text()


def until(holds: Callable[[], bool], seconds: float) -> float:
    """Wait until something holds, at most so long; gives how long it took."""
    begun = time.monotonic()
    while True:
        try:
            if holds():
                return time.monotonic() - begun
        except httpx2.ConnectError:
            pass
        assert time.monotonic() - begun < seconds
        time.sleep(0.2)


@pytest.mark.parametrize("how", ["down", "silent"])
def test_a_replica_that_is_cut_off_says_so_and_recovers(hosted: Hosted, how: Cut) -> None:
    here, worker = hosted.here, hosted.worker(hosted.there)
    with replica(hosted, here) as ask:
        until(lambda: ask("GET", "/healthz")[0] == 200, 60)
        status, text, _ = ask("POST", "/runs", json={"prompt": "work:600 the end", "session": "s"})
        assert status == 201, text
        run_id = json.loads(text)["run"]["id"]
        until(lambda: json.loads(ask("GET", f"/runs/{run_id}")[1])["run"]["phase"] == "acting", 60)

        here.cut(how)
        requests: list[tuple[str, str, Any]] = [
            ("GET", f"/runs/{run_id}", None), ("POST", f"/runs/{run_id}/cancel", {}), ("GET", "/runs", None),
            ("POST", "/runs", {"prompt": "Hello"}), ("GET", f"/runs/{run_id}/events", None), ("GET", "/fleet", None),
        ]  # fmt: skip
        for method, path, body in requests:
            status, text, took = ask(method, path, **({} if body is None else {"json": body}))
            print(f"{how}: {method} {path.replace(run_id, 'ID')}: {status} after {took:.1f} s")
            assert (status, json.loads(text)["error"]["code"]) == (503, "store_unavailable")
            assert took < BOUND
        noticed = until(lambda: ask("GET", "/healthz")[0] == 503, BOUND)
        assert json.loads(ask("GET", "/healthz")[1])["status"] == "store_unavailable"

        here.mend(how)
        recovered = until(lambda: ask("GET", "/healthz")[0] == 200, BOUND)
        print(f"{how}: /healthz says so after {noticed:.1f} s more, and recovers {recovered:.1f} s after the link")
        status, text, _ = ask("POST", f"/runs/{run_id}/cancel", params={"wait": 30})
        stop = json.loads(text)
        assert (status, stop["accepted"], stop["receipt"]["stop_reason"]) == (200, True, "cancelled")
        assert ask("GET", f"/runs/{run_id}/events")[1].count("event: run_ended") == 1
    assert worker.terminate() == 0
