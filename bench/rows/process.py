"""A client's process, as the command that measures sees it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..field.environments import ROOT
from .clients._base import Wire
from .environments import environment
from .wires import Way, without_proxies

TIME_LIMIT: Final = 120.0  # seconds for one task


class ClientFailed(Exception):
    """A client could not do what it was asked. Says why."""


class Subject(NamedTuple):
    """One column of the table: a client, where it is installed, and where the sources of Quiesce are."""

    name: str
    module: str
    installed: str
    source: str = ""

    def python(self) -> str:
        """The interpreter of its environment."""
        return environment(self.installed)

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment of its processes. Nothing leaves the machine."""
        path = os.pathsep.join(each for each in (self.source, str(ROOT)) if each)
        own = {"PYTHONPATH": path, "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        return without_proxies(os.environ) | own | dict(more)


class Process:
    """A client that runs, and does one thing at a time."""

    def __init__(self, subject: Subject, way: Way) -> None:
        self.name: Final = subject.name
        self._errors: Final = tempfile.TemporaryFile("w+")  # noqa: SIM115
        wire: Wire = way.wire
        command = [subject.python(), "-m", "bench.rows.worker", subject.module, json.dumps(wire._asdict())]
        self._process: Final = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=subject.variables(way.variables),
        )

    def do(self, what: str, **parameters: Any) -> dict[str, Any]:
        """Send a task; returns what it found. Raises `ClientFailed`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        alarm = threading.Timer(TIME_LIMIT, self._process.kill)
        alarm.start()
        try:
            print(json.dumps({"do": what, **parameters}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()
            raise ClientFailed(said[-1] if said else "its process ended")
        found = json.loads(line)
        if "error" in found:
            raise ClientFailed(found["error"])
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
