"""Checks that no other process serves agents on the same listening socket.

A run lives in one process. With `uvicorn --workers 2` the system gives half of the requests to the other process, which
answers a stop with 404. Linux only: elsewhere nothing is checked.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ..errors import ConfigurationError

_FOLDER: Final = "/proc/self/fd"


# The names that this process has bound, with the number of its applications that need each.
_bound: Final[dict[str, tuple[socket.socket, int]]] = {}


@contextmanager
def sole_server() -> Generator[None]:
    """Reserve the listening sockets of this process. Raises `ConfigurationError` when another process has one."""
    with ExitStack() as reserved:
        for inode in list(_listening()):
            _reserve(inode)
            reserved.callback(_release, inode)
        yield


def _reserve(inode: str) -> None:
    """Bind a name for a listening socket; the system frees the name with the process."""
    if inode in _bound:
        name, count = _bound[inode]
        _bound[inode] = name, count + 1
        return
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0quiesce/{os.getuid()}/{inode}")
    except OSError:
        name.close()
        raise ConfigurationError(
            "Another process serves agents on the same socket, and would get half of the requests to stop a run.",
            todo="Start the server with one worker process (uvicorn: --workers 1); its event loop serves many runs.",
        ) from None
    _bound[inode] = name, 1


def _release(inode: str) -> None:
    name, count = _bound.pop(inode)
    if count > 1:
        _bound[inode] = name, count - 1
    else:
        name.close()


def _listening() -> Iterator[str]:
    """The inodes of the sockets on which this process accepts connections, or will: in a worker they are inherited."""
    for entry in os.listdir(_FOLDER) if os.path.isdir(_FOLDER) else ():
        try:
            target = os.readlink(f"{_FOLDER}/{entry}")
            if target.startswith("socket:") and _accepts(int(entry)):
                yield target.strip("socket:[]")
        except OSError:  # it was closed meanwhile
            continue


def _accepts(descriptor: int) -> bool:
    """Whether a socket has an address and no peer. uvicorn calls `listen()` only after the application has started."""
    opened = socket.socket(fileno=descriptor)
    try:
        address = opened.getsockname()
        if opened.type != socket.SOCK_STREAM or not (address[1] if isinstance(address, tuple) else address):
            return False
        opened.getpeername()
    except OSError as error:
        return error.errno == errno.ENOTCONN
    else:
        return False
    finally:
        opened.detach()
