"""The fork server: a small program, started once per host process, that does nothing but fork supervisors.

It never imports the user's code and never starts a thread, so its forks are safe and cheap, which a fork of the host,
with its threads and locks, would not be. It ends when the host does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from .frames import encode_plain
from .supervisor import IGNORED_SIGNALS, supervise


def main(control: int) -> NoReturn:
    """Fork a supervisor for each socket that arrives on `control`, until that closes."""
    for number in IGNORED_SIGNALS:  # a service manager sends them to all processes; this one ends when the host does
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whatever the host has blocked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    gc.collect()
    gc.freeze()  # what is here is shared by every fork, and stays so
    requests = socket.socket(fileno=control)
    while True:
        try:
            data, handles, _, _ = socket.recv_fds(requests, 1, 1)
        except InterruptedError:
            continue
        except OSError:
            os._exit(0)
        if not data:
            os._exit(0)
        with socket.socket(fileno=handles[0]) as control_of_one:
            _fork_supervisor(control_of_one, requests)


def _fork_supervisor(control: socket.socket, requests: socket.socket) -> None:
    try:
        child = os.fork()
    except OSError as error:  # there are too many processes; later there may be fewer
        with suppress(OSError):
            control.sendall(encode_plain(("failed", f"{type(error).__name__}: {error}")))
        return
    if child == 0:
        requests.close()
        supervise(control)


if __name__ == "__main__":
    main(int(sys.argv[1]))
