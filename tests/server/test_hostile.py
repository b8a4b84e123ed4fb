"""A provider and clients that do their worst, against a server with little memory: it lives, answers, holds no loop."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx2
import pytest

from .hostile_provider import ATTACKS, hostile_provider

pytestmark = [pytest.mark.promise("P1", "P8"), pytest.mark.proof, pytest.mark.timeout(600)]

LONGEST_HOLD = 0.05


class Host:
    """The server's process, and a client that asks for its health all the time."""

    def __init__(self, provider: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.hostile_host", provider, *ATTACKS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self.answers = 0
        self.slowest = 0.0
        self.wrong: list[str] = []
        self._over = threading.Event()
        self._asker = threading.Thread(target=self._ask)
        while True:
            with suppress(httpx2.TransportError):
                self.client.get("/healthz")
                break
        self._asker.start()

    def _ask(self) -> None:
        with httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20) as client:
            while not self._over.wait(0.1):
                begun = time.monotonic()
                try:
                    status = client.get("/healthz").status_code
                except httpx2.HTTPError as error:
                    self.wrong.append(repr(error))
                    continue
                self.answers += 1
                self.slowest = max(self.slowest, time.monotonic() - begun)
                if status != 200:
                    self.wrong.append(str(status))

    def report(self) -> dict[str, Any]:
        """What was longest since the last report."""
        assert self.process.poll() is None, f"the server has ended with {self.process.returncode}"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        health, self.slowest = self.slowest, 0.0
        return found | {"health": health}

    def run(self, agent: str, **body: Any) -> httpx2.Response:
        return self.client.post("/runs", json={"prompt": "Go", "agent": agent, **body})

    def close(self) -> None:
        self._over.set()
        self._asker.join()
        self.client.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextmanager
def hosted() -> Iterator[tuple[Host, float]]:
    """A server, and how long its loop may be held: 50 ms, or three times what it was when nothing went on."""
    with hostile_provider() as provider:
        host = Host(provider)
        try:
            warm_up(host)
            host.report()
            time.sleep(3)
            idle = host.report()
            allowed = max(LONGEST_HOLD, 3 * idle["hold"])
            print(f"\nidle: {shown(idle)}; allowed {allowed * 1000:.0f} ms; load {os.getloadavg()[0]:.0f}")
            yield host, allowed
        finally:
            host.close()
        assert not host.wrong, host.wrong[:5]
        print(f"{host.answers} answers to /healthz")


def warm_up(host: Host) -> None:
    """Modules are imported when they are needed first."""
    for agent in ("talker", "openai-bad_chunks", "anthropic-bad_chunks"):
        end(host, host.run(agent).json()["run"]["id"], 10)


def end(host: Host, run_id: str, patience: float) -> dict[str, Any]:
    """Wait for the end of a run; stop it when it takes too long."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        run: dict[str, Any] = host.client.get(f"/runs/{run_id}").json()["run"]
        if run["state"] == "ended":
            return run
        time.sleep(0.1)
    stopped = host.client.post(f"/runs/{run_id}/cancel", params={"wait": 20})
    return stopped.json()["run"] | {"stopped": True}


def shown(found: dict[str, Any]) -> str:
    hold, waiting = found["hold"] * 1000, found["with waiting"] * 1000
    health, memory = found["health"] * 1000, found["memory"]
    waiting_or_gc = f"{waiting:.0f} with waiting, gc {found['gc'] * 1000:.0f}"
    return f"hold {hold:.0f} ms ({waiting_or_gc}), /healthz {health:.0f} ms, {memory} MB"


def test_a_hostile_provider() -> None:
    too_long: list[str] = []
    with hosted() as (host, allowed):
        for attack in ATTACKS:
            for kind in ("openai", "anthropic"):
                run = end(host, host.run(f"{kind}-{attack}").json()["run"]["id"], 8)
                found = host.report()
                how = f"{run['stop_reason']} {run['error'] or ''}"[:90]
                print(f"{kind} {attack}: {shown(found)}; {how}", flush=True)
                assert run["state"] == "ended", run
                if found["hold"] > allowed:
                    too_long.append(f"{kind} {attack}: {found['hold'] * 1000:.0f} ms in {found['what']}")
    assert not too_long, "\n".join(too_long)


# --- Clients --------------------------------------------------------------------------------------------------------

HEAD = b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def connections(host: Host, count: int, data: bytes, stack: ExitStack) -> list[socket.socket]:
    found: list[socket.socket] = []
    for _ in range(count):
        with suppress(OSError):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", host.port), timeout=20)))
            found[-1].sendall(data)
    return found


def huge_prompts(host: Host) -> None:
    text = "word " * 1_600_000  # almost as much as is allowed
    for prompt in (text, "x" * 7_900_000, text, "\\u0000" * 100_000):
        answer = host.run("talker", prompt=prompt)
        if answer.status_code == 201:
            end(host, answer.json()["run"]["id"], 0)


def deep_json(host: Host) -> None:
    for body in (b"[" * 4_000_000, b'{"prompt":' * 500_000, b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        answer = host.client.post("/runs", content=body, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500, answer.status_code


def slowloris(host: Host) -> None:
    with ExitStack() as stack:
        heads = connections(host, 300, HEAD + b"X-", stack)
        bodies = connections(host, 200, HEAD + b"Content-Length: 100\r\n\r\n{", stack)
        for _ in range(10):
            for each in (*heads, *bodies):
                with suppress(OSError):
                    each.sendall(b"a")
            time.sleep(0.3)


def idle_and_slow_readers(host: Host) -> None:
    run_id = host.run("talker").json()["run"]["id"]
    with ExitStack() as stack:
        request = f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        readers = connections(host, 400, request, stack)
        for _ in range(20):
            for each in readers[::2]:
                with suppress(OSError):
                    each.recv(10)
            time.sleep(0.1)
    end(host, run_id, 0)


def starts_and_stops(host: Host) -> None:
    def flood(number: int) -> None:
        with httpx2.Client(base_url=f"http://127.0.0.1:{host.port}", timeout=60) as client:
            for _ in range(50):
                answer = client.post("/runs", json={"prompt": "Go", "agent": "talker", "session": f"s{number}"})
                if answer.status_code == 201:
                    path = f"/runs/{answer.json()['run']['id']}/cancel"
                    for mode in ("after_turn", "now", "kill"):
                        assert client.post(path, json={"mode": mode}).status_code < 500

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(flood, range(8)))


def bad_idempotency_keys(host: Host) -> None:
    for key in ("x" * 60_000, "\x01\x02", "'; DROP TABLE runs", "ü" * 100, "", " " * 100, "\udcff"):
        with suppress(UnicodeError, httpx2.LocalProtocolError):
            headers = {"Idempotency-Key": key.encode("latin-1", "surrogateescape")}
            assert (
                host.client.post("/runs", json={"prompt": "Go", "agent": "talker"}, headers=headers).status_code < 500
            )
    for number in range(500):
        answer = host.client.post(
            "/runs", json={"prompt": "Go", "agent": "talker", "session": "k"}, headers={"Idempotency-Key": f"k{number}"}
        )
        assert answer.status_code < 500
        if answer.status_code == 201:
            host.client.post(f"/runs/{answer.json()['run']['id']}/cancel")


CLIENTS: tuple[Callable[[Host], None], ...] = (
    huge_prompts, deep_json, slowloris, idle_and_slow_readers, starts_and_stops, bad_idempotency_keys,
)  # fmt: skip


def test_hostile_clients() -> None:
    too_long: list[str] = []
    with hosted() as (host, allowed):
        for attack in CLIENTS:
            attack(host)
            found = host.report()
            print(f"{attack.__name__}: {shown(found)}", flush=True)
            if found["hold"] > allowed:
                too_long.append(f"{attack.__name__}: {found['hold'] * 1000:.0f} ms in {found['what']}")
    assert not too_long, "\n".join(too_long)
