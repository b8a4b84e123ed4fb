"""Starting real programs, each on a port of its own, and waiting until they answer."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..support.programs import program


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def listening(command: Sequence[str], log: Path, port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that listens on a port. It is ended with the block, if the test has not ended it."""
    with program(command, log, **environment) as process:
        _wait_for_port(process, port, log)
        yield process


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{process.args} does not listen: {log.read_text()}")
