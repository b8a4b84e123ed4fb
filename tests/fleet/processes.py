"""Workers in processes of their own, which can be killed and frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..docs.pages import ROOT
from .agents import WITNESS


class WorkerProcess:
    """`quiesce worker` with the agent of the tests.

    `within` begins its command: it enters a namespace. `source` is the folder of another version of the package.
    """

    def __init__(
        self,
        url: str,
        witness: Path,
        *,
        lease: float = 2.0,
        capacity: int = 20,
        drain: float = 5.0,
        metrics: int | None = None,
        within: Sequence[str] = (),
        source: str = "",
    ) -> None:
        command = [*within, sys.executable, "-m", "quiesce.cli", "worker", "tests.fleet.agents:agent", "--store", url]
        options = ["--lease", str(lease), "--capacity", str(capacity), "--drain", str(drain), "--log-level", "error"]
        options += [] if metrics is None else ["--metrics", str(metrics)]
        self._log = witness.with_suffix(".log").open("ab")
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, WITNESS: str(witness), **({"PYTHONPATH": source} if source else {})},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(30)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def terminate(self) -> int:
        self.send(signal.SIGTERM)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self._log.close()


def witnessed(path: Path) -> list[tuple[Any, ...]]:
    """What the tools did: the process, `start`, `done` or `stopped`, the run, the call, and the time of a stop."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def counted(path: Path, what: str) -> dict[str, int]:
    """How often each call was started or done."""
    found: dict[Any, int] = {}
    for _, kind, _, call, *_ in witnessed(path):
        if kind == what:
            found[call] = found.get(call, 0) + 1
    return found
