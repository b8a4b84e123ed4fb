"""What the process needs: memory, objects, descriptors, threads, tasks, child processes. Read from /proc."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import threading
import time
from collections import Counter
from pathlib import Path

from msgspec import Struct

_C = ctypes.CDLL(None)


class Sample(Struct, frozen=True):
    """The state of the process in one instant."""

    minute: float
    rss: float
    objects: int
    descriptors: int
    threads: int
    tasks: int
    children: int
    active: int
    cpu: float
    entries: int = 0
    """The entries of the ledgers that the agents keep: 10,000 each at most, and by intention."""

    @property
    def other_memory(self) -> float:
        """The memory in MB without that of the ledger, at 1.5 kB for an entry."""
        return self.rss - self.entries * 0.0015

    def line(self) -> str:
        """For people."""
        return (
            f"{self.minute:6.1f} min  rss {self.rss:6.1f} MB  objects {self.objects:7d}  fds {self.descriptors:4d}"
            f"  threads {self.threads:3d}  tasks {self.tasks:5d}  children {self.children:3d}"
            f"  runs {self.active:3d}  cpu {self.cpu:4.2f}  entries {self.entries:5d}"
        )


class Gauges:
    """Takes samples; minutes count from the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = (time.monotonic(), time.process_time())

    def sample(self, active: int, entries: int) -> Sample:
        """Look at everything, after a collection. Memory that is free is given back first, where that is possible."""
        gc.collect()
        if hasattr(_C, "malloc_trim"):
            _C.malloc_trim(0)
        now, cpu = time.monotonic(), time.process_time()
        used = (cpu - self._last[1]) / max(0.001, now - self._last[0])
        self._last = (now, cpu)
        return Sample(
            (now - self._began) / 60,
            rss(),
            len(gc.get_objects()),
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(asyncio.all_tasks()),
            len(_descendants(os.getpid())),
            active,
            used,
            entries,
        )


def rss() -> float:
    """Resident memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def kinds() -> Counter[str]:
    """How many objects of each type there are."""
    return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, children.read_text().split())
        except OSError:
            continue
    return found + [below for child in found for below in _descendants(child)]
