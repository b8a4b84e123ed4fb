"""A proxy in front of a server: connections can be cut, at once or in the middle of an answer, or pass nothing on."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Any


class CutProxy:
    """Listens on a port of this machine, and passes everything on to a Unix socket. One thread."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.refuses = False
        """Whether new connections are closed at once."""
        self.cuts = 0
        self._left: int | None = None
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._wake, self._woken = socket.socketpair()
        self._cut_now = self._closing = False
        self._silent_until = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cut proxy", daemon=True)
        self._thread.start()

    def cut(self, after: int | None = None) -> None:
        """Cut all connections: now, or when the server has answered so many more bytes."""
        if after is not None:
            self._left = after
            return
        self._done.clear()
        self._cut_now = True
        self._wake.send(b"!")
        self._done.wait()

    def fall_silent(self, seconds: float) -> None:
        """Pass nothing on for a while, and accept nothing: no connection is closed."""
        self._silent_until = time.monotonic() + seconds
        self._wake.send(b"!")

    def close(self) -> None:
        """Cut everything and end the thread."""
        self._silent_until = 0.0
        self._closing = True
        self._wake.send(b"!")
        self._thread.join()

    def _work(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._closing:
                while time.monotonic() < self._silent_until:
                    time.sleep(0.02)
                for key, _ in selector.select():
                    source: Any = key.fileobj
                    if source is self._woken:
                        self._woken.recv(100)
                    elif source is self._listener:
                        self._accept(selector)
                    elif source in self._peers:
                        self._pass_on(selector, source)
                if self._cut_now:
                    self._cut_now = False
                    self._drop_all(selector)
                    self._done.set()
            self._drop_all(selector)
        for each in (self._listener, self._wake, self._woken):
            each.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            if self.refuses:
                raise ConnectionRefusedError
            server.connect(self._target)
        except OSError:
            client.close()
            server.close()
            return
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, selector: selectors.BaseSelector, source: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(65536)
        ends = not data
        if self._left is not None and source not in self._clients:
            data, self._left = data[: self._left], self._left - len(data)
            if self._left <= 0:
                self._left, self._cut_now = None, True
        if source not in self._clients:
            data = self._answer(source, data)
        try:
            self._peers[source].sendall(data)
        except OSError:
            ends = True
        if ends:
            self._drop(selector, source)

    def _answer(self, server: socket.socket, data: bytes) -> bytes:
        """What is passed on of an answer. For subclasses."""
        return data

    def _drop(self, selector: selectors.BaseSelector, one: socket.socket) -> None:
        other = self._peers.pop(one)
        self._peers.pop(other, None)
        for each in (one, other):
            self._clients.discard(each)
            with suppress(KeyError):
                selector.unregister(each)
            each.close()

    def _drop_all(self, selector: selectors.BaseSelector) -> None:
        self.cuts += bool(self._peers)
        while self._peers:
            self._drop(selector, next(iter(self._peers)))
