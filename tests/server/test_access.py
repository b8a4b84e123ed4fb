"""Who may use the server, and what two servers on one store tell of each other."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from quiesce.errors import ConfigurationError, StoreFull
from quiesce.server import Keys, add_key, create_app, hash_key, mount, new_key
from quiesce.server.keys import keys_from_environment, keys_from_file
from quiesce.sessions.stores.sqlite import SQLiteStore

from .support import Served, endless, free_port, serving, start, talker, wait_for_text

pytestmark = [pytest.mark.promise("P8"), pytest.mark.timeout(60)]

# --- Owners and keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, ""])
def test_an_owner_without_a_name_is_refused(owner: str | None):
    with serving(app=create_app(talker(), owner_of=lambda _: owner)) as served, served.client() as client:
        for path in ("/runs", "/sessions", "/usage"):
            assert client.get(path).status_code == 401
        assert client.post("/runs", json={"prompt": "x"}).status_code == 401


def test_an_owner_that_is_no_text_is_a_failure_of_the_server(caplog: pytest.LogCaptureFixture):
    def owner_of(request: Request) -> Any:
        return 7

    with serving(app=create_app(talker(), owner_of=owner_of)) as served, served.client() as client:
        assert client.get("/runs").status_code == 500
    assert "owner_of returned int" in caplog.text
    mounted = mount(Starlette(), talker(), owner_of=owner_of)
    assert mounted.services.runs.active == ()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_key_file_that_others_can_write_is_refused(tmp_path: Path, mode: int):
    file = tmp_path / "keys"
    add_key(file, "ann")
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="Other users can write the key file"):
        keys_from_file(file)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        add_key(file, "bob")


def test_a_key_file_that_others_can_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "keys"
    ann = add_key(file, "ann")
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING, "quiesce.server"):
        assert Keys(keys_from_file(file)).owner(ann) == "ann"
    assert "Other users can read the key file" in caplog.text


def test_a_key_with_a_line_break_is_refused():
    good = new_key()
    for key in (good + "\n", "\n" + good, f"{good}\nbob={good}", good + "\r", good + " x", good + "\x00", good + "é"):
        with pytest.raises(ConfigurationError, match="line break"):
            hash_key(key)
    with pytest.raises(ConfigurationError, match="line break"):
        keys_from_environment(f"ann={good}\nbob={new_key()}")
    assert set(keys_from_environment(f"ann={good}\n")) == {"ann"}  # as `cat file` gives it


def test_a_key_file_without_a_last_line_break_takes_another_key(tmp_path: Path):
    file = tmp_path / "keys"
    ann = add_key(file, "ann")
    file.write_text(file.read_text().rstrip("\n"))
    bob = add_key(file, "bob")
    keys = Keys(keys_from_file(file))
    assert (keys.owner(ann), keys.owner(bob)) == ("ann", "bob")


# --- Proxies --------------------------------------------------------------------------------------------------------

PROXY = """
import encodings.idna, os, socket, sys
os.setgid(65534); os.setuid(int(sys.argv[2]))
listener = socket.create_server(("127.0.0.1", int(sys.argv[3])))
print("ready", flush=True)
client, _ = listener.accept()
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
server.sendall(client.recv(65536))
while data := server.recv(65536):
    client.sendall(data)
"""


@contextmanager
def proxy(port: int, user: int) -> Iterator[int]:
    """A proxy that passes one request on as it is, and adds nothing."""
    own = free_port()
    command = [sys.executable, "-S", "-c", PROXY, str(port), str(user), str(own)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield own
        child.wait(20)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to be another user")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
@pytest.mark.parametrize(("user", "status"), [(65534, b"401"), (0, b"200")])
def test_a_proxy_of_another_user_that_adds_no_header_is_seen(user: int, status: bytes):
    with serving(talker()) as served, proxy(served.port, user) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := client.recv(65536):
                answer += part
        assert answer.split()[1] == status


@pytest.mark.parametrize("header", ["Via", "X-Forwarded-Proto", "CF-Connecting-IP", "True-Client-IP"])
def test_more_headers_of_proxies(header: str):
    with serving(talker()) as served, served.client() as client:
        assert client.get("/runs", headers={header: "1.1 proxy"}).status_code == 401


# --- Two servers on one store ----------------------------------------------------------------------------------------


@contextmanager
def two_servers(path: Path) -> Iterator[tuple[Served, httpx2.Client, httpx2.Client]]:
    stores = [SQLiteStore(path), SQLiteStore(path)]
    first, second = (create_app(endless(), store=store) for store in stores)
    with (
        serving(app=first) as one,
        serving(app=second) as two,
        one.client() as a,
        two.client() as b,
    ):
        yield one, a, b


def test_a_session_that_another_server_uses_is_a_409_without_host_names(tmp_path: Path):
    with two_servers(tmp_path / "s.db") as (_, a, b):
        run_id = start(a, session="shared")
        wait_for_text(a, run_id)
        answers = [
            b.post("/runs", json={"prompt": "x", "session": "shared"}, headers={"Idempotency-Key": "k"}),
            b.post("/runs", json={"prompt": "x", "session": "shared"}),
            b.delete("/sessions/shared"),
            b.post(f"/runs/{run_id}/cancel", json={}),
            b.get(f"/runs/{run_id}"),
        ]
        for answer in answers:
            assert answer.status_code == 409, answer.text
            assert socket.gethostname() not in answer.text
            assert str(os.getpid()) not in answer.text
        assert b.get("/runs").json()["runs"] == []
        assert b.get("/sessions/shared").json()["messages"][0]["content"][0]["text"] == "Hello"
        assert a.post(f"/runs/{run_id}/cancel?wait=10").json()["receipt"]["saved"] is True
        # It can be read and gone on with there as soon as it is at rest, also with the key that was refused.
        assert b.get(f"/runs/{run_id}").json()["run"]["state"] == "ended"
        again = b.post("/runs", json={"prompt": "x", "session": "shared"}, headers={"Idempotency-Key": "k"})
        assert again.status_code == 201


# --- A full disk ----------------------------------------------------------------------------------------------------


class Disk(SQLiteStore):
    """A store whose disk is full, at times."""

    is_full = False

    def _unless_full(self, name: str, *args: Any) -> Future[Any]:
        if not self.is_full:
            return getattr(super(), name)(*args)
        failed: Future[Any] = Future()
        failed.set_exception(StoreFull("no room"))
        return failed

    def write(self, *args: Any) -> Future[int]:
        return self._unless_full("write", *args)

    def release(self, *args: Any) -> Future[None]:
        return self._unless_full("release", *args)


@pytest.mark.promise("P9")
def test_a_lease_that_a_full_disk_left_behind_is_the_servers_own(tmp_path: Path):
    disk = Disk(tmp_path / "s.db")
    with serving(app=create_app(endless(), store=disk)) as served, served.client() as client:
        for name in ("deleted", "used"):
            run_id = start(client, session=name)
            wait_for_text(client, run_id)
            disk.is_full = True
            assert client.post(f"/runs/{run_id}/cancel?wait=10").json()["receipt"]["saved"] is False
            disk.is_full = False
        assert client.delete("/sessions/deleted").status_code == 204
        # It is not said to be on another server, although its end is not in the store and it is not in memory.
        served.do(lambda: served.app.services.retention.drop(served.app.services.runs.get("local", run_id)))
        assert client.get(f"/runs/{run_id}").json()["run"]["state"] == "crashed"
        again = start(client, session="used")
        wait_for_text(client, again)
        assert client.get(f"/runs/{again}").json()["run"]["state"] == "running"
