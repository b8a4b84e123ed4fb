"""A program for a test: a server and its client in a network of their own, which is then switched off.

Prints how the client's run ended, or "no network of one's own" where the machine does not allow one.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from quiesce.server import Settings

from .support import endless, serving, start

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


def leave_the_network() -> bool:
    """Go into a network namespace with nothing in it. Whether that was allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if os.getuid() else 0)) == 0


def switch_loopback(flags: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", flags))


def main() -> None:
    if not leave_the_network():
        print("no network of one's own")
        return
    switch_loopback(UP_AND_RUNNING)
    settings = Settings(heartbeat=0.1, send_timeout=0.5, on_disconnect="cancel", disconnect_grace=0.1)
    with serving(endless(), settings=settings) as served:
        with served.client() as client:
            run_id = start(client)
        with socket.create_connection(("127.0.0.1", served.port)) as reader:
            reader.sendall(f"GET /runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            text = b""
            while b"event: text" not in text:
                text += reader.recv(65536)
            switch_loopback(0)
            served.at_rest(run_id)  # the server notices although nobody hangs up
        receipt = served.do(lambda: served.app.services.runs.get("local", run_id).receipt)
        print(receipt.stop_reason, receipt.cause.source)


if __name__ == "__main__":
    main()
