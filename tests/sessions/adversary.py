"""Faults by a seeded schedule, while two processes have runs in the same sessions; and what must hold afterwards."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from quiesce import Agent, Session
from quiesce.errors import SessionNotFound
from quiesce.sessions.journal.rows import decode_row
from quiesce.sessions.store import SessionStore
from quiesce.testing import ScriptedModel

from ..support.cut_proxy import CutProxy
from ..support.seen import SeenRun, check_session
from .adversary_worker import LEASE
from .conftest import Postgres

SESSIONS = 100
AT_ONCE = 12


class WorkerProcess:
    """One process with runs, and all that it tells."""

    def __init__(self, url: str, name: str) -> None:
        self.seen: dict[str, tuple[str, SeenRun]] = {}
        self.odd: list[str] = []
        self.left: tuple[int, int] | None = None
        self.ends: Counter[str] = Counter()
        self.said: list[str] = []
        self._ready = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sessions.adversary_worker", url, name, str(SESSIONS), str(AT_ONCE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._readers = [threading.Thread(target=read) for read in (self._listen, self._collect)]
        for reader in self._readers:
            reader.start()
        if not self._ready.wait(300):
            self.close(kill=True)
            raise AssertionError("".join(self.said))

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.rstrip(b"\n").split(b"\t"):
                case [b"ready"]:
                    self._ready.set()
                case [b"begin", run, session]:
                    self.seen[run.decode()] = session.decode(), SeenRun(run.decode())
                case [b"event", run, event]:
                    self.seen[run.decode()][1].events.append(decode_row(event))  # type: ignore[arg-type]
                case [b"end", run, saved, reason, error, answers]:
                    seen = self.seen[run.decode()][1]
                    seen.saved = saved == b"1"
                    seen.answers = msgspec.json.decode(answers) if seen.saved else []
                    if not seen.saved and reason == b"end_turn":
                        self.odd.append(f"run {seen.run_id} looks successful and is not saved")
                    self.ends[reason.decode() if error == b"NoneType" else error.decode()] += 1
                case [b"left", threads, files]:
                    self.left = int(threads), int(files)
                case _ if self.process.poll() is None or line.startswith(b"odd"):
                    self.odd.append(line.decode(errors="replace"))
                case _:
                    pass  # the last words of a process that was killed

    def _collect(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said = [*self.said[-40:], line.decode(errors="replace")]
            if line.startswith((b"Task ", b"Exception in ", b"Future exception", b"Fatal")):
                self.odd.append(line.decode())

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()

    def close(self, *, kill: bool = False) -> int:
        if kill:
            self.process.kill()
        else:
            self.tell("end")
        code = self.process.wait(120)
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return code


class Adversary:
    """Runs and faults until there were enough of both."""

    def __init__(self, url: str, *, seed: int, faults: dict[str, tuple[float, Callable[[float], Any]]]) -> None:
        self.dice = random.Random(seed)
        self.url = url
        self.faults = faults | {
            "frozen beyond the lease": (1.5, self._frozen),
            "clock jumps": (2, self._clock),
            "no descriptors": (2, self._no_descriptors),
            "no threads": (2, self._no_threads),
            "killed": (0.7, self._killed),
        }
        self._names = (f"w{number}" for number in itertools.count())
        self.workers = [WorkerProcess(url, next(self._names)) for _ in range(2)]
        self.gone: list[WorkerProcess] = []
        self.done: Counter[str] = Counter()

    @property
    def runs(self) -> int:
        return sum(sum(worker.ends.values()) for worker in (*self.gone, *self.workers))

    def run(self, runs: int, faults: int) -> None:
        try:
            while self.runs < runs or self.done.total() < faults:
                names = list(self.faults)
                name = self.dice.choices(names, [self.faults[each][0] for each in names])[0]
                time.sleep(self.dice.uniform(0.02, 0.2))
                self.faults[name][1](self.dice.random())
                self.done[name] += 1
                for worker in self.workers:
                    assert worker.process.poll() is None, "".join(worker.said)
            for worker in self.workers:
                assert worker.close() == 0, "".join(worker.said)
        finally:
            for worker in self.workers:
                worker.close(kill=True)

    # --- Faults of a process ------------------------------------------------------------------------------------

    def _one(self) -> WorkerProcess:
        return self.dice.choice(self.workers)

    def _frozen(self, size: float) -> None:
        worker = self._one()
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE * (1.0 + size))
        worker.process.send_signal(signal.SIGCONT)

    def _clock(self, size: float) -> None:
        self._one().tell(f"clock {self.dice.choice((-3600, -5, 0, 0, 5, 86400)) * size}")

    def _no_descriptors(self, size: float) -> None:
        worker = self._one()
        files = len(list(Path(f"/proc/{worker.process.pid}/fd").iterdir()))
        with limited(worker, resource.RLIMIT_NOFILE, files - 3):
            worker.tell("reopen")
            time.sleep(0.05 + size * 0.5)

    def _no_threads(self, size: float) -> None:
        worker = self._one()
        worker.tell("reopen\nthreads no")
        time.sleep(0.05 + size * 1.5)
        worker.tell("threads yes")

    def _killed(self, _: float) -> None:
        at = self.dice.randrange(len(self.workers))
        self.workers[at].close(kill=True)
        self.gone.append(self.workers[at])
        self.workers[at] = WorkerProcess(self.url, next(self._names))

    # --- What must hold -----------------------------------------------------------------------------------------

    async def check(self, store: SessionStore) -> None:
        for worker in (*self.gone, *self.workers):
            assert not worker.odd, (worker.odd[:3], "".join(worker.said))
        left = [worker.left for worker in self.workers]
        assert left == [(0, 0)] * len(left), f"threads and descriptors that are left: {left}"
        seen: dict[str, list[SeenRun]] = {}
        for session, run in (each for worker in (*self.gone, *self.workers) for each in worker.seen.values()):
            seen.setdefault(session, []).append(run)
        for name, runs in seen.items():
            agent = Agent(ScriptedModel("It goes on."), session=Session(name, store, wait=5))
            assert (await agent.invoke_async("And now?")).receipt.saved
            with suppress(SessionNotFound):
                await check_session(store, name, runs)

    def figures(self) -> str:
        ends: Counter[str] = sum((worker.ends for worker in (*self.gone, *self.workers)), Counter())
        return f"{self.runs} runs: {dict(ends.most_common())}; {self.done.total()} faults: {dict(self.done)}"


@contextmanager
def limited(worker: WorkerProcess, what: int, soft: int) -> Any:
    before = resource.prlimit(worker.process.pid, what)
    resource.prlimit(worker.process.pid, what, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(worker.process.pid, what, before)


def against_sqlite(path: Path, *, seed: int, runs: int, faults: int) -> Adversary:
    def locked(size: float) -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as other, suppress(sqlite3.Error):
            other.execute("BEGIN EXCLUSIVE")
            time.sleep(0.1 * math.exp(size * math.log(200)))  # 0.1 to 20 s
            other.execute("ROLLBACK")

    def full(size: float) -> None:
        with ExitStack() as stack:
            for worker in adversary.workers:
                stack.enter_context(limited(worker, resource.RLIMIT_FSIZE, 4096))
            time.sleep(0.05 + size)

    adversary = Adversary(str(path), seed=seed, faults={"file locked": (1.2, locked), "disk full": (2, full)})
    adversary.run(runs, faults)
    return adversary


def against_postgres(server: Postgres, url: str, *, seed: int, runs: int, faults: int) -> Adversary:
    proxy = CutProxy(server.socket)

    def cut(size: float) -> None:
        proxy.cut(after=None if size < 0.3 else int(size * 5000))

    def refused(size: float) -> None:
        proxy.refuses = True
        proxy.cut()
        time.sleep(size)
        proxy.refuses = False

    def restarted(size: float) -> None:
        server.stop("immediate" if size < 0.5 else "fast")
        time.sleep(size)
        server.start()

    through = f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable"
    chosen = {"connections cut": (4, cut), "connections refused": (1, refused), "Postgres restarted": (0.5, restarted)}
    try:
        adversary = Adversary(through, seed=seed, faults=chosen)  # type: ignore[arg-type]
        adversary.run(runs, faults)
    finally:
        proxy.close()
    return adversary


def check(adversary: Adversary, store: SessionStore) -> None:
    try:
        asyncio.run(adversary.check(store))
    finally:
        store.close().result()
        print(adversary.figures(), flush=True)
