"""The ways to the server: plain, through a proxy, over TLS, over TLS through a proxy, and over HTTP/2."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._proxy import running_proxy
from .._server import running_server
from ..field.environments import ROOT
from .clients._base import Wire
from .environments import environment

PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Way(NamedTuple):
    """A wire, and what the environment of its clients says of proxies."""

    wire: Wire
    variables: Mapping[str, str]


class Ways:
    """All ways, while their servers run. `relayed` counts the requests that went through the proxy."""

    def __init__(self, url: str, proxy: str, relayed: Any) -> None:
        self._plain: Final = url
        self._proxy: Final = proxy
        self.relayed: Final = relayed
        self._tls: tuple[str, str] | None = None
        self._stack: Final = contextlib.ExitStack()

    def way(self, name: str) -> Way:
        """One of them. The server with TLS is started when it is first needed."""
        if name == "plain":
            return Way(Wire(self._plain), {})
        if name == "proxy":
            return Way(Wire(self._plain), {"HTTP_PROXY": self._proxy})
        if self._tls is None:
            self._tls = self._stack.enter_context(running_tls_server())
        proxy = {"HTTPS_PROXY": self._proxy} if name == "TLS through a proxy" else {}
        return Way(Wire(*self._tls, name == "HTTP/2"), proxy)

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def running_ways() -> Iterator[Ways]:
    """Start the server and the proxy, and end all that was started."""
    with (
        running_server() as url,
        running_proxy() as (proxy, relayed),
        contextlib.closing(Ways(url, proxy, relayed)) as w,
    ):
        yield w


@contextlib.contextmanager
def running_tls_server() -> Iterator[tuple[str, str]]:
    """Start the server with TLS; gives its address and the file of its certificate authority, and ends it."""
    with socket.socket() as found, tempfile.TemporaryDirectory(prefix="rows-") as folder:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        found.close()
        command = [environment("server"), "-m", "bench.rows.tls_server", str(port), folder]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=ROOT, env=variables) as server:
            try:
                authority = Path(folder) / "authority.pem"
                _wait_for(server, port, authority)
                yield f"https://127.0.0.1:{port}", str(authority)
            finally:
                server.terminate()


def _wait_for(server: subprocess.Popen[bytes], port: int, authority: Path, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, ssl.SSLError):
            context = ssl.create_default_context(cafile=str(authority))
            with socket.create_connection(("127.0.0.1", port)) as plain:
                context.wrap_socket(plain, server_hostname="127.0.0.1").close()
            return
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the server with TLS did not start")
        time.sleep(0.1)


def without_proxies(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment that says nothing of proxies."""
    return {name: value for name, value in variables.items() if name.lower() not in PROXIES}
