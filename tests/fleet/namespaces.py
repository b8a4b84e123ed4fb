"""Hosts in network namespaces of this machine, on one switch. A host's link can be cut in two ways. Needs root."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

from ..sessions.conftest import Postgres

# down     the interface of the host is down: it has no route, and new connections fail at once
# silent   the cable leads nowhere: no error and no reset, and packets are sent again and again
Cut: TypeAlias = Literal["down", "silent"]

_CLONE_NEWNET = 0x40000000
_PORT = 5432


def why_not() -> str:
    """Why there can be no namespaces here; empty when there can."""
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    name = f"quiesce-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made: {error.stderr.decode().strip()}"
    try:
        _ip("-n", name, "link", "add", "switch", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"no bridge can be made: {error.stderr.decode().strip()}"
    finally:
        _ip("netns", "delete", name)
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A switch, and hosts with an address each."""

    def __init__(self) -> None:
        self._prefix = f"quiesce-{os.getpid()}"
        self._hosts: list[str] = []
        self._switch = f"{self._prefix}-switch"
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")

    def host(self, name: str) -> Host:
        """A new host."""
        self._hosts.append(f"{self._prefix}-{name}")
        host, port, address = self._hosts[-1], f"to-{name}", f"10.77.0.{len(self._hosts)}"
        _ip("netns", "add", host)
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
        _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", host, "link", "set", "eth0", "up")
        return Host(host, address, self._switch, port)

    def close(self) -> None:
        for name in (*self._hosts, self._switch):
            _ip("netns", "delete", name)


class Host:
    """A namespace with an address. Its loopback is its own; it shares the files of this machine."""

    def __init__(self, name: str, address: str, switch: str, port: str) -> None:
        self.address = address
        self._name = name
        self._switch = switch
        self._port = port
        self.command = ("nsenter", f"--net=/run/netns/{name}", "--")
        """What begins a command that is to run here."""

    def cut(self, how: Cut) -> float:
        """Cut the link; gives the time before that."""
        at = time.monotonic()
        if how == "down":
            _ip("-n", self._name, "link", "set", "eth0", "down")
        else:
            _ip("-n", self._switch, "link", "set", self._port, "nomaster")
        return at

    def mend(self, how: Cut) -> None:
        """Mend the link that was cut in this way."""
        if how == "down":
            _ip("-n", self._name, "link", "set", "eth0", "up")
        else:
            _ip("-n", self._switch, "link", "set", self._port, "master", "switch")

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread that is in this namespace: so are the sockets that it opens."""
        with ThreadPoolExecutor(1, initializer=self._enter) as thread:
            return thread.submit(function).result()

    def _enter(self) -> None:
        file = os.open(f"/run/netns/{self._name}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(file)


class PostgresOnHost(Postgres):
    """A server that listens on the address of a host, and on its socket for this process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        super().__init__(connections=100)

    def start(self) -> None:
        (self._data / "pg_hba.conf").write_text("local all all trust\nhost all all 10.77.0.0/24 trust\n")
        user = self._data.stat()
        entered = [*self._host.command[:-1], "--setuid", str(user.st_uid), "--setgid", str(user.st_gid), "--"]
        command = [str(self._programs / "pg_ctl"), "-D", str(self._data), "-w", "-l", str(self._folder / "log")]
        options = f"-k {self._folder} -c listen_addresses={self._host.address} -c fsync=off -c max_connections=100"
        subprocess.run(
            [*entered, *command, "-o", options, "start"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
        )

    def address(self, url: str) -> str:
        """The address for other hosts of a database, whose address for this process is given."""
        return url.replace("@/", f"@{self._host.address}:{_PORT}/").partition("?")[0]
