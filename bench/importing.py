"""`from quiesce import *`: everything that an agent needs, time and memory, each time in a fresh interpreter."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

_PROBE = """
import time

def resident():  # not ru_maxrss, which begins with what the starting process had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

before = resident()
started = time.perf_counter()
from quiesce import *
took = time.perf_counter() - started
print(took * 1e3, resident(), before)
"""


def _probe(compiled: str) -> tuple[float, ...]:
    """Import once. Compiled modules are kept in a folder, as they are after an installation."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables["PYTHONPYCACHEPREFIX"] = compiled
    ran = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, env=variables)
    return tuple(float(word) for word in ran.stdout.split())


def main() -> None:
    with tempfile.TemporaryDirectory() as compiled:
        _probe(compiled)
        rows = [_probe(compiled) for _ in range(11)]
    took, peak, bare = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"all its names    {took:6.1f} ms (target: under 150)")
    print(f"resident         {peak:6.1f} MB (target: under 40; Python alone has {bare:.1f})")


if __name__ == "__main__":
    main()
