"""The nursery: a small program, started once per host process, that does nothing but fork keepers.

It never imports the user's code and never starts a thread, so its forks are safe and cheap, which a fork of the host,
with its threads and locks, would not be. It ends when the host does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

from .keeper import keep


def main(control: int) -> NoReturn:
    """Fork a keeper for each socket that arrives on `control`, until that closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
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
        if os.fork() == 0:
            requests.close()
            keep(socket.socket(fileno=handles[0]))
        for handle in handles:
            os.close(handle)


if __name__ == "__main__":
    main(int(sys.argv[1]))
