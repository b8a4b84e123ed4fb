"""What saving costs: a 20,000-chunk answer with a SQLite session, against the same answer in memory; and loading."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import os
import pstats
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple

from quiesce import Agent, Session
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.models.scripted import Say, ScriptedModel
from quiesce.sessions.records import RunBegin, RunEnd, WriteBatch, holder
from quiesce.sessions.store import Store
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore

CHUNKS = 20_000
ROUNDS = 25


def _script() -> ScriptedModel:
    return ScriptedModel(Say("word " * CHUNKS, chunk=5))


class AcquiredSession(NamedTuple):
    """What an answer took: by the clock, and by the processor, in all threads."""

    wall: float
    cpu: float


async def _answer(store: Store | None) -> AcquiredSession:
    agent = Agent(_script()) if store is None else Agent(_script(), session="bench", store=store)
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    async for _ in agent.stream_async("go"):
        pass
    taken = AcquiredSession(time.perf_counter() - wall, time.process_time() - cpu)
    if store is not None:
        await asyncio.wrap_future(store.delete("bench"))
    return taken


def _measure(stores: dict[str, Store | None]) -> dict[str, list[AcquiredSession]]:
    """One after the other, round by round, so that a slow moment of the machine hits them all."""
    times: dict[str, list[AcquiredSession]] = {name: [] for name in stores}
    for _ in range(ROUNDS):
        for name, store in stores.items():
            times[name].append(asyncio.run(_answer(store)))
    return times


def _compare(times: dict[str, list[AcquiredSession]]) -> None:
    base = times["memory"]
    for name, taken in times.items():
        wall = statistics.median(each.wall for each in taken)
        cpu = statistics.median(each.cpu for each in taken)
        by_wall = statistics.median(each.wall / one.wall for each, one in zip(taken, base, strict=True))
        by_cpu = statistics.median(each.cpu / one.cpu for each, one in zip(taken, base, strict=True))
        print(
            f"{name:12} {wall * 1e3:7.1f} ms, {by_wall:5.3f}x by the clock;"
            f" {cpu * 1e3:6.1f} ms, {by_cpu:5.3f}x by the processor"
        )
    load = os.getloadavg()[0]
    print(f"target: SQLite at most 1.15x of memory (load average {load:.1f} on {os.cpu_count()} cores)")


def _fill(store: Store, session: str, messages: int) -> None:
    lease = store.acquire(session, holder("bench"), seconds=60).result().lease
    batch = WriteBatch("filling")
    batch.begin = RunBegin("bench", time.time())
    batch.end = RunEnd("ended", "end_turn", time.time())
    batch.release = True
    for number in range(messages // 2):
        batch.messages.append(UserMessage((Text(f"Question {number}: " + "why " * 40),)))
        batch.messages.append(AssistantMessage((Text(f"Answer {number}: " + "because " * 60),)))
    store.write(lease, batch).result()


def _loading(store: Store) -> None:
    for messages in (2_500, 5_000, 10_000, 20_000):
        name = f"long {messages}"
        _fill(store, name, messages)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            Session(name, store).load_sync()
            times.append(time.perf_counter() - started)
        tracemalloc.start()
        Session(name, store).load_sync()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        took = statistics.median(times)
        print(
            f"load {messages:6,} messages  {took * 1e3:7.1f} ms, {took / messages * 1e6:5.2f} us each;"
            f" peak {peak / 1e6:6.1f} MB, {peak / messages:6.0f} bytes each"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sqlite = SQLiteStore(Path(folder) / "bench.db")
        safe = SQLiteStore(Path(folder) / "safe.db", power_safe=True)
        times = _measure({"memory": None, "MemoryStore": MemoryStore(), "SQLite": sqlite, "power_safe": safe})
        safe.close().result()
        _compare(times)
        _loading(sqlite)
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(asyncio.run, _answer(sqlite))
            pstats.Stats(profile).sort_stats("tottime").print_stats(12)
        sqlite.close().result()


if __name__ == "__main__":
    main()
