"""Serving an ASGI application on a free port of the loopback, for programs that tests start."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    """Print the port in a line of its own, and serve until the process ends."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    # Else each small write waits up to 40 ms for the acknowledgement of the one before.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on")).run(sockets=[listener])
