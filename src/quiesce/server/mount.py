"""Quiesce inside an existing application: as a sub-application, or as one line in a handler."""

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

from ..agent import Agent, AnyAgent
from ..cancellation import Mode, ModeName
from ..cancellation.cause import parse_mode
from ..run.handle import Run
from .app import Application, create_app
from .auth import OwnerOf
from .deps import DepsFactory
from .keys import Keys
from .settings import Settings

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def mount(
    app: Starlette,
    agent: AnyAgent | Sequence[AnyAgent],
    path: str = "/agent",
    *,
    keys: Keys | None = None,
    owner_of: OwnerOf | None = None,
    settings: Settings | None = None,
    store: object = None,
    deps: DepsFactory | None = None,
) -> Application:
    """Serve agents under `path` of a FastAPI or Starlette application; call it before the application starts.

    keys       the API keys; without keys and `owner_of`, only clients on this machine have access
    owner_of   instead of keys: returns the owner of a request; None refuses the request
    store      where sessions and runs are saved: a path, a URL or a `Store`
    deps       a function, sync or async, that makes the deps of each run from a `RunRequest`

    SIGTERM and SIGINT drain the runs: they are stopped after their turn, then now, then by force. The server gets the
    signal when they are at rest, so that a client can stop its run meanwhile; a second signal ends the drain.
    Raises `ConfigurationError` for no agent, or two of the same name.
    """
    agents = (agent,) if isinstance(agent, Agent) else tuple(agent)
    inner = create_app(*agents, settings=settings, keys=keys, owner_of=owner_of, store=store, deps=deps)
    app.mount(path, inner)
    outer_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(outer: Any) -> AsyncGenerator[Any]:
        async with outer_lifespan(outer) as state, inner.open_services():
            with _drain_on_signals(inner):
                yield state

    app.router.lifespan_context = lifespan
    return inner


@contextmanager
def _drain_on_signals(inner: Application) -> Generator[None]:
    """Drain when a signal arrives, then call the previous handler: a server that shuts down accepts no requests.

    A second signal calls it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def pass_on(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    def drain(number: int) -> None:
        if inner.drain.begun:
            inner.drain.hurry()
            pass_on(number, None)
        else:
            inner.drain.begin().add_done_callback(lambda _: pass_on(number, None))

    def on_signal(number: int, frame: FrameType | None) -> None:
        try:
            loop.call_soon_threadsafe(drain, number)
        except RuntimeError:  # the loop has closed
            pass_on(number, frame)

    for number, handler in before.items():
        if callable(handler):  # a handler that was not set from Python cannot be called
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


def stop_on_disconnect(request: Request, run: Run, *, mode: ModeName | Mode = Mode.NOW) -> Callable[[], None]:
    """Stop a run when the client of this request disconnects. For your own handler, after it has read the body:

        run = agent.start(prompt)
        stop_on_disconnect(request, run)
        return {"answer": (await run).text}

    The cause's source is `disconnect`. Returns at once, with a function that ends the watch; the watch also
    ends with the run. A response that is sent while the run is active ends the request, and so stops the run.
    Raises `UnknownMode`.
    """
    mode = parse_mode(mode)
    watcher = asyncio.get_running_loop().create_task(_watch(request, run, mode), name=f"client of run {run.id}")

    def end_watch() -> None:
        watcher.cancel()

    async def end_with_run() -> None:
        await run.stopped()
        watcher.cancel()

    ender = asyncio.get_running_loop().create_task(end_with_run(), name=f"end of run {run.id}")
    watcher.add_done_callback(lambda _: ender.cancel())
    return end_watch


async def _watch(request: Request, run: Run, mode: ModeName | Mode) -> None:
    with suppress(ClientDisconnect, RuntimeError):  # RuntimeError: the handler has read the body as a stream
        await request.body()
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel("the client went away", mode=mode, source="disconnect")
