"""Starts the coding agent's server, and talks to it as its page does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from ..server.support import read_events

ROOT: Final = Path(__file__).parents[2]
USERS: Final = tuple(f"user{number}" for number in range(12))


class CodingSite:
    """The server's process. Its socket outlives it, so that a restart has the same address."""

    def __init__(self, data: Path) -> None:
        self.data: Final = data
        self._listener: Final = socket.create_server(("127.0.0.1", 0))
        self.url: Final = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        descriptor = self._listener.fileno()
        command = [sys.executable, "-m", "tests.examples.coding_site", str(descriptor), str(self.data)]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[descriptor])
        with httpx2.Client(base_url=self.url, timeout=30) as client:  # waits in the backlog until the server accepts
            assert client.get("/agent/healthz").status_code == 200
        return process

    def kill(self) -> None:
        """kill -9, and the next process."""
        self._process.kill()
        self._process.wait(20)
        self._process = self._start()

    def deploy(self) -> None:
        """SIGTERM, the drain to its end, and the next process."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) in (0, -signal.SIGTERM)
        self._process = self._start()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            self._listener.close()

    def folder(self, user: str) -> Path:
        return self.data / user

    def user(self, user: str) -> User:
        return User(self, user)


class User:
    """One user: a folder, a conversation, and the newest run of the task."""

    def __init__(self, site: CodingSite, name: str) -> None:
        self.name: Final = name
        self.folder: Final = site.folder(name)
        self.client: Final = httpx2.Client(base_url=f"{site.url}/agent", cookies={"user": name}, timeout=60)
        self.run_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        response = self.client.post(path, json={} if body is None else body)
        assert response.status_code < 300, response.text
        return response.json()

    def ask(self, *answers: object) -> None:
        """Start a task with a script."""
        body = {"prompt": json.dumps(answers), "session": "project"}
        self.run_id = self.post("/runs", body)["run"]["id"]

    def events(self) -> list[tuple[int, str, dict[str, Any]]]:
        """The events of the newest run, to its end."""
        return read_events(self.client, self.run_id)

    def asked(self) -> list[dict[str, Any]]:
        """What is asked, once the newest run is at rest."""
        self.events()
        return self.client.get(f"/runs/{self.run_id}").json()["run"]["interrupts"]

    def answer(self, interrupt_id: str, answer: object) -> None:
        answers = [{"id": interrupt_id, "answer": answer}]
        self.run_id = self.post(f"/runs/{self.run_id}/resume", {"answers": answers})["run"]["id"]

    def approve_all(self, most: int = 1000) -> None:
        """Approve one call after the other, until nothing is asked, or so many."""
        for _ in range(most):
            asked = self.asked()
            if not asked:
                return
            self.answer(asked[0]["id"], {"type": "approve"})

    def wait_for_output(self, text: str) -> None:
        """Wait until a running tool has printed something."""
        with self.client.stream("GET", f"/runs/{self.run_id}/events") as response:
            assert any(
                line.startswith("data") and text in line and "progress" in line for line in response.iter_lines()
            )

    def receipt(self) -> dict[str, Any]:
        self.events()
        return self.client.get(f"/runs/{self.run_id}").json()["receipt"]


def running_with(marker: str) -> list[str]:
    """The command lines of all processes that have a marker in them."""
    found = [_command(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [command for command in found if marker in command]


def wait_until_gone(marker: str) -> None:
    """Wait until no such process is left: after kill -9, the supervisor ends them a moment later."""
    end = time.monotonic() + 20
    while found := running_with(marker):
        assert time.monotonic() < end, found
        time.sleep(0.02)


def _command(process: str) -> str:
    try:
        return Path("/proc", process, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has ended meanwhile
        return ""


def edits(number: int) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """An answer for each of so many files, which replaces `old` by `new` in it."""
    for each in range(number):
        yield [("edit_file", {"path": f"file{each}.txt", "edits": [{"old": "old", "new": "new"}]})]


def write_files(folder: Path, number: int) -> None:
    for each in range(number):
        (folder / f"file{each}.txt").write_text(f"old {each}\n")
