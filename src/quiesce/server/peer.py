"""The user whose process has opened a connection from this machine, as Linux tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _USER = 1, 2, 7


def is_of_another_user(client_port: int, server_port: int) -> bool:
    """Whether a connection over the loopback comes from a process of another user, such as a proxy.

    False when that cannot be seen, as on systems other than Linux.
    """
    ends = (f":{client_port:04X}", f":{server_port:04X}")
    users = {int(row[_USER]) for row in _rows() if row[_LOCAL].endswith(ends[0]) and row[_REMOTE].endswith(ends[1])}
    return bool(users) and os.getuid() not in users


def _rows() -> Iterator[list[str]]:
    """The TCP connections of this machine, each seen from both of its ends."""
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                next(file, None)
                yield from (row for row in map(str.split, file) if len(row) > _USER)
        except OSError:
            continue
