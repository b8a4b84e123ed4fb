"""Quiesce inside an application that somebody has already: a sub-application, or a single line in a handler."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request

from ..agent import Agent
from ..cancellation import Mode
from ..cancellation.cause import parse_mode
from ..run.handle import Run
from .app import Application, create_app
from .auth import OwnerOf
from .keys import Keys
from .settings import Settings

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def mount(
    app: Starlette,
    agent: Agent | Sequence[Agent],
    path: str = "/agent",
    *,
    keys: Keys | None = None,
    owner_of: OwnerOf | None = None,
    settings: Settings | None = None,
    store: object = None,
) -> Application:
    """Serve agents under `path` of a FastAPI or Starlette application; call it before the application starts.

    keys       who may use it; without keys, and without `owner_of`, only this machine may
    owner_of   whose request this is, by your application's own rules; None refuses it
    store      where sessions and runs outlive the process: a path, a URL or a `Store`

    The runs are stopped, patiently at first, when the application's server gets SIGTERM or SIGINT, and the
    application's shutdown waits for them. Raises `ConfigurationError` for no agent, or two of the same name.
    """
    agents = (agent,) if isinstance(agent, Agent) else tuple(agent)
    inner = create_app(*agents, settings=settings, keys=keys, owner_of=owner_of, store=store)
    app.mount(path, inner)
    outer_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(outer: Any) -> AsyncGenerator[Any]:
        async with outer_lifespan(outer) as state, inner.open_desk():
            with _drain_on_signals(inner):
                yield state

    app.router.lifespan_context = lifespan
    return inner


@contextmanager
def _drain_on_signals(inner: Application) -> Generator[None]:
    """Begin to drain with the signal itself, and hand it on: a server that shuts down waits for open streams first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(inner.drain.begin)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number, handler in before.items():
        if callable(handler):  # one that was not set from Python, or ignores the signal, cannot be handed it on
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


def stop_on_disconnect(request: Request, run: Run, *, mode: str = Mode.NOW) -> Callable[[], None]:
    """Stop a run when the client of this request goes away. For a handler of your own, once it has read the body:

        run = agent.start(prompt)
        stop_on_disconnect(request, run)
        return {"answer": (await run).text}

    The cause's source is `disconnect`. Returns at once, with the way to call it off; it ends with the run.
    An answer that is sent while the run goes on ends the request too, and so the run. Raises `UnknownMode`.
    """
    mode = parse_mode(mode)
    watcher = asyncio.get_running_loop().create_task(_watch(request, run, mode), name=f"client of run {run.id}")

    def call_off() -> None:
        watcher.cancel()

    async def end_with_run() -> None:
        await run.stopped()
        watcher.cancel()

    ender = asyncio.get_running_loop().create_task(end_with_run(), name=f"end of run {run.id}")
    watcher.add_done_callback(lambda _: ender.cancel())
    return call_off


async def _watch(request: Request, run: Run, mode: str) -> None:
    with suppress(ClientDisconnect, RuntimeError):  # RuntimeError: the handler has read the body as a stream
        await request.body()
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel("the client went away", mode=mode, source="disconnect")
