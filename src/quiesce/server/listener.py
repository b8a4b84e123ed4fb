"""The listening process: uvicorn with time limits for slow clients; signals drain it before it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..agent import AnyAgent
from ..errors import ConfigurationError
from ..processes.environment import hide_environment
from .app import Application, create_app
from .auth import is_loopback
from .deps import DepsFactory
from .keys import Keys
from .settings import Settings
from .streams import ABORT

_log: Final = logging.getLogger("quiesce.server")
# Seconds that clients get to read the last events after the last run has ended.
_FLUSH_TIMEOUT: Final = 5
# Seconds that the remaining tasks get after their cancellation.
_CANCEL_TIMEOUT: Final = 1.0
_KEEP_ALIVE: Final = 30
_MAX_HEAD: Final = 64 * 1024


def serve(
    *agents: AnyAgent,
    host: str = "127.0.0.1",
    port: int = 8765,
    keys: Keys | None = None,
    settings: Settings | None = None,
    store: object = None,
    deps: DepsFactory | None = None,
    log_level: str = "info",
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve agents until SIGTERM or SIGINT; then drain, and return. The parameters are those of `create_app`.

    A tool that cannot be stopped does not keep the process alive: its receipt says `abandoned`, and the process ends
    with exit code 0. `on_ready` is called with the server's address when it listens. Other processes can no longer read
    this one's environment: see `hide_environment`. Raises `ConfigurationError` when there are no keys and the host is
    reachable from other machines, and for a port that does not exist.
    """
    if not 0 <= port <= 65535:  # the system would take the lowest 16 bits
        raise ConfigurationError(
            f"There is no port {port}.", todo="Use one from 1 to 65535, or 0 for one that is free."
        )
    if keys is None and not is_loopback(host):
        raise ConfigurationError(
            f"{host} can be reached from other machines, and there are no API keys.",
            todo="Start with --key-file (see `quiesce key`), or listen on 127.0.0.1.",
        )
    app = create_app(*agents, settings=settings, keys=keys, store=store, deps=deps)
    hide_environment()  # from processes that tools start
    listening = server(app, host=host, port=port, log_level=log_level)
    listening.on_ready = on_ready

    async def main() -> None:
        freeze_loaded_objects()
        await listening.serve()
        await _cancel_remaining_tasks()

    with asyncio.Runner(loop_factory=listening.config.get_loop_factory()) as runner:
        runner.run(main())


def freeze_loaded_objects() -> None:
    """Leave everything that is loaded by now out of garbage collections: a full one holds the event loop."""
    gc.collect()
    gc.freeze()


async def _cancel_remaining_tasks() -> None:
    """Cancel the tasks that are left; end the process if one does not stop, because the loop would wait for it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT)
    stubborn = [task.get_name() for task in tasks if not task.done()]
    if stubborn:
        _log.error("ending the process although these tasks did not stop: %s", ", ".join(stubborn))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def server(app: Application, *, host: str = "127.0.0.1", port: int = 0, log_level: str = "info") -> DrainingServer:
    """A uvicorn server for an application; it drains the application before it ends."""
    settings = app.services.settings
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=log_level,
        access_log=log_level in ("debug", "trace"),
        server_header=False,
        ws="none",
        http=_protocol(settings.header_timeout, settings.send_timeout),
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_FLUSH_TIMEOUT,
        h11_max_incomplete_event_size=_MAX_HEAD,
        limit_concurrency=settings.max_streams + settings.max_runs + 1000,
        backlog=4096,
        proxy_headers=False,
    )
    return DrainingServer(config, app)


class DrainingServer(uvicorn.Server):
    """The first signal drains and the second one hurries. The process then ends by itself, with exit code 0."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._app: Final = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_ready: Callable[[str], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.on_ready is not None and self.started:
            self.on_ready(self._url())

    def _url(self) -> str:
        """The address for a browser on this machine. The port is the one that the system has given for port 0."""
        port = self.servers[0].sockets[0].getsockname()[1]
        host = "localhost" if self.config.host in ("0.0.0.0", "::", "") else self.config.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """A signal. Not recorded for uvicorn, which would raise it again at the end: a drain is a clean exit."""
        _log.info("%s: draining", signal.Signals(sig).name)
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """End the runs, then the server. A second call hurries. In the server's own loop."""
        if self._app.services.quotas.draining:
            self._app.drain.hurry()
        self._app.drain.begin().add_done_callback(self._drained)

    def _drained(self, _: object) -> None:
        self.should_exit = True


def _protocol(header_timeout: float, send_timeout: float) -> type[H11Protocol]:
    """uvicorn's protocol with time limits for the head of a request and for the acknowledgement of sent bytes.

    Without the first, a client that sends a byte now and then can hold a connection for ever; without the second, one
    whose network has gone is noticed after a quarter of an hour.
    """

    class TimeLimitedProtocol(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            set_send_timeout(connection, send_timeout)
            send_at_once(connection)
            self._await_head(transport.abort)

        def data_received(self, data: bytes) -> None:
            cycle = self.cycle
            super().data_received(data)
            if self.cycle is not cycle:
                self.scope.setdefault("state", {})[ABORT] = self.transport.abort
            if self.conn.their_state is h11.IDLE:
                self._await_head(self.transport.abort)
            else:
                self._forget_timer()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:  # the next one has begun already
                self._await_head(self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_timer()
            super().connection_lost(exc)

        def _await_head(self, give_up: Callable[[], None]) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(header_timeout, give_up)

        def _forget_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return TimeLimitedProtocol


def set_send_timeout(connection: socket.socket, seconds: float) -> None:
    """Abort a connection when sent bytes are not acknowledged within so many seconds.

    A client that loses its network sends no FIN, and heartbeats fit into the kernel's buffer for hours. Only the kernel
    knows that nothing is acknowledged. Where it has no such option, its own timeout applies.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, option, min(int(seconds * 1000), 2**31 - 1))


def send_at_once(connection: socket.socket) -> None:
    """Send small writes without waiting for the acknowledgement of those before, which clients delay by up to 40 ms.

    asyncio does so too, but not for a listening socket that was opened without naming TCP, as many programs do.
    """
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
