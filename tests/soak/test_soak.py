"""Many runs at a time, for long: everything stays flat, nothing is said that nobody should hear, every run ends once.

`make proof` runs this for ten minutes with its own Postgres, `make proof-long` for an hour; QUIESCE_SOAK_SECONDS is
another length, QUIESCE_SOAK_SEED another seed, and QUIESCE_SOAK_CPU the part of one core that it may use. It writes to
build/soak.log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from ..sessions.conftest import Postgres
from ..support.lengths import proof_length
from .soak import Soak

pytestmark = pytest.mark.promise("P5", "P7")

LOG = Path(__file__).parents[2] / "build" / "soak.log"
SECONDS = proof_length("SOAK_SECONDS", 600, 3600)
SEED = int(os.environ.get("QUIESCE_SOAK_SEED", "14"))
CPU = float(os.environ.get("QUIESCE_SOAK_CPU", "0.5"))


@pytest.fixture(autouse=True)
def own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soak listens to errors that threads and finalizers report.

    What Quiesce logs about a store that is away does not reach pytest, which would keep each exception with its frames.
    """
    monkeypatch.setattr(logging.getLogger("quiesce"), "propagate", False)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


def soak(soak: Soak) -> Soak:
    # pytest attaches its handlers, which keep what is logged, to loggers that do not propagate as the test is called.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("quiesce"), "handlers", [logging.NullHandler()])
        asyncio.run(soak.run())
    soak.print_summary()
    assert soak.tally.wrong == []
    assert not soak.words
    assert soak.tally.counts["ended"] == soak.tally.counts["runs"]
    return soak


def test_a_few_seconds_of_everything(tmp_path: Path) -> None:
    soak(Soak(tmp_path, None, seed=SEED, runs=20, seconds=1.0, cpu=0.8, quiet=9.0))


@pytest.mark.proof
@pytest.mark.timeout(SECONDS + 900)
def test_many_minutes_of_everything(tmp_path: Path) -> None:
    postgres = Postgres()
    LOG.parent.mkdir(exist_ok=True)
    try:
        quiet = max(20.0, min(600.0, SECONDS / 6))
        with LOG.open("w", buffering=1) as log, redirect_stdout(log):
            done = soak(Soak(tmp_path, postgres, seed=SEED, runs=200, seconds=SECONDS, cpu=CPU, quiet=quiet))
    finally:
        postgres.close()
    first, last = done.quiet[0], done.quiet[-1]
    assert last.other_memory <= first.other_memory * 1.1 + 5, f"{first.line()}\n{last.line()}"
    assert last.objects <= first.objects * 1.1, f"{first.line()}\n{last.line()}"
    # A worker that is kept for the next call has three pipes, and how many are kept varies.
    assert last.descriptors - 3 * last.children <= first.descriptors - 3 * first.children + 5
    assert last.threads <= first.threads + 5
    assert last.tasks <= first.tasks
    assert last.children <= first.children + 5
