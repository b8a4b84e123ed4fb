"""A proxy in front of Postgres that loses some notifications, and sends others twice."""

from __future__ import annotations

import random
import socket
from collections import Counter

from ..support.cut_proxy import CutProxy

_NOTIFICATION = ord("A")
# A message of the server: a byte for its type, then four for its length, which counts itself.
_HEADER = 5


class NotificationProxy(CutProxy):
    """Reads the messages of the server. Connections must not use TLS."""

    def __init__(self, target: str, dice: random.Random, *, lost: float, doubled: float) -> None:
        self._dice = dice
        self._shares = lost, doubled
        self._unfinished: dict[socket.socket, bytes] = {}
        self.seen: Counter[str] = Counter()
        super().__init__(target)

    def _answer(self, server: socket.socket, data: bytes) -> bytes:
        data = self._unfinished.pop(server, b"") + data
        passed, start = bytearray(), 0
        while len(data) - start >= _HEADER:
            end = start + 1 + int.from_bytes(data[start + 1 : start + _HEADER], "big")
            if end > len(data):
                break
            passed += data[start:end] * (self._copies() if data[start] == _NOTIFICATION else 1)
            start = end
        if self._cut_now:  # in the middle of a message
            passed += data[start:]
        elif start < len(data):
            self._unfinished[server] = data[start:]
        return bytes(passed)

    def _copies(self) -> int:
        lost, doubled = self._shares
        chance = self._dice.random()
        what, copies = ("lost", 0) if chance < lost else ("doubled", 2) if chance < lost + doubled else ("passed", 1)
        self.seen[what] += 1
        return copies
