"""Faults by a seeded schedule, while workers run many runs; and what must hold when all is at rest."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quiesce.conversation.validity import faults
from quiesce.errors import SessionNotFound, StoreError, StoreUnavailable
from quiesce.events import RunEnded, ToolEnded
from quiesce.fleet import FleetRun
from quiesce.sessions import Session

from ..sessions.conftest import Postgres
from .conftest import FleetUnderTest
from .notification_proxy import NotificationProxy
from .processes import WorkerProcess, witnessed

# The faults, and how often each comes.
FAULTS = {"stop": 8.0, "kill": 2.0, "freeze": 2.0, "cut": 1.0, "silence": 1.0, "terminate": 1.0, "restart": 0.5}
# The shares of notifications that are lost, and that come twice.
LOST, DOUBLED = 0.2, 0.2


class Fault(NamedTuple):
    """A fault: when it comes, in seconds from the beginning, what it is, and a number that says where."""

    at: float
    kind: str
    where: float


def schedule(seed: int, seconds: float, pause: float) -> list[Fault]:
    """The faults of a programme, with this pause between two on average. They depend on nothing but the seed."""
    dice, faults, at = random.Random(f"{seed}: faults"), list[Fault](), 0.0
    while (at := at + dice.uniform(0.2, 1.8) * pause) < seconds:
        faults.append(Fault(at, dice.choices(list(FAULTS), list(FAULTS.values()))[0], dice.random()))
    return faults


def prompts(seed: int, count: int) -> list[str]:
    """The prompts of a programme."""
    dice, words = random.Random(f"{seed}: prompts"), ("word", "work:0", "work:0.05", "work:0.3", "again:0.1")
    return [
        " ".join([*(dice.choice(words) for _ in range(dice.randint(1, 4))), *dice.choice(((), (), (), ("stall",)))])
        for _ in range(count)
    ]


class Chaos:
    """One programme: `workers` processes, each behind a proxy of its own, `runs` runs, and faults for `seconds`."""

    def __init__(
        self,
        postgres: Postgres,
        fleet: FleetUnderTest,
        witness: Path,
        *,
        seed: int,
        workers: int,
        runs: int,
        seconds: float,
        pause: float,
        lease: float,
    ) -> None:
        self._postgres = postgres
        self._fleet = fleet
        self._witness = witness
        self._seconds = seconds
        self._lease = lease
        self._prompts = prompts(seed, runs)
        self._faults = schedule(seed, seconds, pause)
        self._proxies = [
            NotificationProxy(postgres.socket, random.Random(f"{seed}: proxy {number}"), lost=LOST, doubled=DOUBLED)
            for number in range(workers)
        ]
        self._workers = [self._worker(number) for number in range(workers)]
        self._frozen: dict[WorkerProcess, float] = {}
        self._stopped: set[str] = set()
        self.done: Counter[str] = Counter()

    def _worker(self, number: int) -> WorkerProcess:
        database = self._fleet.url.partition("?")[0].rpartition("/")[2]
        url = f"postgresql://postgres@127.0.0.1:{self._proxies[number].port}/{database}?sslmode=disable"
        return WorkerProcess(url, self._witness, lease=self._lease, capacity=10)

    # --- The programme ------------------------------------------------------------------------------------------

    async def run(self) -> list[FleetRun]:
        """Submit, disturb, stop what never ends, and wait until all is at rest; gives all runs."""
        try:
            submitting = asyncio.create_task(self._submit())
            await self._disturb()
            submitted = await submitting
            self.heal()
            await self._stop_the_rest()
            async with asyncio.timeout(180):
                while active := await self._fleet.fleet.runs(states=("queued", "running"), limit=10_000):
                    await self._fleet.rest(active[0].id)
                    await self._stop_the_rest()
            runs = await self._fleet.fleet.runs(limit=10_000)
            assert set(submitted) <= {run.id for run in runs}
            codes = await asyncio.gather(*(asyncio.to_thread(worker.terminate) for worker in self._workers))
            assert set(codes) <= {0, -signal.SIGTERM}, codes  # SIGTERM ends one that was just starting
            assert "Traceback" not in self._witness.with_suffix(".log").read_text()
            return runs
        finally:
            for worker in self._workers:
                worker.close()
            for proxy in self._proxies:
                proxy.close()
                self.done += Counter({f"notifications {what}": count for what, count in proxy.seen.items()})

    async def _submit(self) -> list[str]:
        submitted: list[str] = []
        count = len(self._prompts)
        for number, prompt in enumerate(self._prompts):
            session = f"ann/{number % max(1, count * 2 // 3)}"
            while True:
                try:
                    submitted.append((await self._fleet.submit(prompt, session=session)).id)
                    break
                except StoreError:  # the database is away; whether the run was queued is not known
                    await asyncio.sleep(0.2)
            await asyncio.sleep(self._seconds * 0.8 / count)
        return submitted

    async def _disturb(self) -> None:
        """Each fault comes at its time, or as soon as those before it are done."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for at, kind, where in self._faults:
            await asyncio.sleep(begun + at - loop.time())
            self._restart_workers()
            for worker, thaw_at in list(self._frozen.items()):
                if loop.time() >= thaw_at:
                    del self._frozen[worker]
                    worker.thaw()
            if loop.time() - begun > 1.5 * self._seconds:  # a slow machine: the rest of the schedule is left out
                break
            with suppress(StoreError, OSError):
                await getattr(self, f"_{kind}")(where)

    async def _kill(self, where: float) -> None:
        worker = await self._victim(where)
        if worker is not None:
            self._frozen.pop(worker, None)
            worker.kill()
            self._restart_workers()
            self.done["kill"] += 1

    async def _victim(self, where: float) -> WorkerProcess | None:
        """A worker that takes runs; None while too few do, or nothing would go on on a slow machine."""
        up = {info.pid for info in await self._fleet.fleet.workers() if not info.is_lost}
        found = [worker for worker in self._workers if worker.process.pid in up]
        return found[int(where * len(found))] if len(found) >= len(self._workers) // 2 else None

    async def _freeze(self, where: float) -> None:
        worker = await self._victim(where)
        if worker is not None and worker not in self._frozen:
            self._frozen[worker] = asyncio.get_running_loop().time() + where * 3 * self._lease
            worker.freeze()
            self.done["freeze"] += 1

    async def _stop(self, where: float) -> None:
        active = await self._fleet.fleet.runs(states=("queued", "running"), limit=1000)
        if active:
            run = active[int(where * len(active))]
            state = await self._fleet.fleet.stop(run.id, "chaos")
            if state is not None and state.accepted:
                self._stopped.add(state.run.id)
                self.done["stop"] += 1

    async def _cut(self, where: float) -> None:
        """The connections of one worker are cut: now, or in the middle of what the server answers next."""
        proxy = self._proxy(where)
        await asyncio.to_thread(proxy.cut, int(where * 5000) if where < 0.5 else None)
        self.done["cut"] += 1

    async def _silence(self, where: float) -> None:
        """The connections of one worker pass nothing on, for less or more than its lease."""
        self._proxy(where).fall_silent(where * 2 * self._lease)
        self.done["silence"] += 1

    def _proxy(self, where: float) -> NotificationProxy:
        return self._proxies[int(where * 97) % len(self._proxies)]

    async def _terminate(self, where: float) -> None:
        """The server ends some connections, those of this process too."""
        await self._execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            f" AND pid <> pg_backend_pid() AND hashint4(pid) % 10 < {int(where * 6)}"
        )
        self.done["terminate"] += 1

    async def _restart(self, where: float) -> None:
        await asyncio.to_thread(self._postgres.stop, "immediate" if where < 0.5 else "fast")
        await asyncio.sleep(where)
        await asyncio.to_thread(self._postgres.start)
        self.done["restart"] += 1

    async def _execute(self, text: str) -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(self._fleet.url)
        try:
            return await connection.fetch(text)
        finally:
            await connection.close()

    def heal(self) -> None:
        for worker in self._frozen:
            worker.thaw()
        self._frozen.clear()
        self._restart_workers()

    def _restart_workers(self) -> None:
        """A worker that finds no database for the time of its lease ends, and its supervisor starts another."""
        for index, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                worker.close()
                self._workers[index] = self._worker(index)

    async def _stop_the_rest(self) -> None:
        """Runs that stall never end by themselves."""
        for run in await _on_a_live_connection(self._fleet.fleet.runs, states=("queued", "running"), limit=10_000):
            prompt = run.prompt
            if prompt is None or "stall" in prompt.text:
                await _on_a_live_connection(self._fleet.fleet.stop, run.id, "the end of the test")

    # --- What must hold -----------------------------------------------------------------------------------------

    async def check(self, runs: list[FleetRun]) -> None:
        by_id = {run.id: run for run in runs}
        assert not [run.id for run in runs if run.is_active or run.receipt is None]
        assert await self._execute("SELECT id FROM quiesce_pgqueuer") == []
        not_honoured = [run_id for run_id in self._stopped if by_id[run_id].restarted_as]
        assert not not_honoured, f"stopped, and yet continued: {not_honoured}"
        finished: set[tuple[str, str]] = set()
        for run in runs:
            events = [each async for each in self._fleet.fleet.events(run.id)]
            assert [number for number, _ in events] == list(range(1, len(events) + 1))
            assert sum(isinstance(event, RunEnded) for _, event in events) == 1
            finished |= {(run.session, event.result.call_id) for _, event in events if isinstance(event, ToolEnded)}
            if run.restarted_as:
                assert by_id[run.restarted_as].continued_from == run.id
        open_runs = await self._execute(
            "SELECT r.run FROM quiesce_runs r JOIN quiesce_fleet_runs f ON f.id = r.run WHERE r.status = 'running'"
        )
        assert open_runs == [], [by_id[each["run"]] for each in open_runs]
        for session in {run.session for run in runs}:
            with suppress(SessionNotFound):  # no run has begun there
                stored = Session(session, self._fleet.fleet.store)
                assert not faults(await stored.load())
                assert not stored.damage
        starts = Counter(
            (by_id[run].session, call) for _, kind, run, call, *_ in witnessed(self._witness) if kind == "start"
        )
        twice = {key: count for key, count in starts.items() if count > 1 and key in finished}
        assert not await self._without_repeatable(twice), twice

    async def _without_repeatable(self, twice: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
        """Those of the calls that are of a tool that may not run twice."""
        found: list[tuple[str, str]] = []
        for session, call_id in twice:
            messages = await Session(session, self._fleet.fleet.store).load()
            calls = [call for message in messages for call in getattr(message, "tool_calls", ())]
            found += [(session, call_id) for call in calls if call.id == call_id and call.name == "work"]
        return found


async def _on_a_live_connection(call: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
    """Call again while the kept connections are those that the last restart of the database has ended."""
    for _ in range(4):
        with suppress(StoreUnavailable):
            return await call(*args, **options)
    return await call(*args, **options)
