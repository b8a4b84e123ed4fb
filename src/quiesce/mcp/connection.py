"""One connection to an MCP server: a task of its own opens it, keeps it open and closes it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import anyio

from .._threads.loop_end import watch_loop
from .._threads.tasks import start_task
from .._version import __version__
from ..cancellation import BoundedShield
from ..errors import ConfigurationError, ToolError
from ..tools.policy import FINAL_GRACE
from .elicitation import Elicitation
from .error_text import error_text, refusal_text
from .log import ServerLog
from .stdio import ServerProcess
from .tool_list import ToolListWatcher
from .transports import Target

_log: Final = logging.getLogger("quiesce")

# The seconds that the other requests of an expired session have to be refused as well.
_EXPIRY_GRACE: Final = 1.0

_T = TypeVar("_T")


class _Session:
    """One session with the server. `client` is the SDK's client while the session can be used."""

    def __init__(self) -> None:
        self.ready: Final[asyncio.Future[Any]] = asyncio.get_running_loop().create_future()
        self.leaving: Final = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.client: Any = None


class _RequestsInFlight:
    """Counts the requests that the server has not answered yet. `elsewhere` are those that other event loops await."""

    def __init__(self) -> None:
        self.elsewhere: Final[set[concurrent.futures.Future[Any]]] = set()
        self.forget: Final = watch_loop(asyncio.get_running_loop(), on_close=self.end, on_fork=lambda: None)
        self._count = 0
        self._none_left: Final = asyncio.Event()
        self._none_left.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """A request, for as long as it is in flight."""
        self._count += 1
        self._none_left.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none_left.set()

    def end(self) -> None:
        """The loop of the connection has closed: nothing comes back any more."""
        for each in tuple(self.elsewhere):
            with suppress(concurrent.futures.InvalidStateError):
                each.set_exception(concurrent.futures.CancelledError())

    async def wait(self) -> None:
        """Wait until no request is in flight."""
        await self._none_left.wait()


class MCPConnection:
    """Keeps a connection open in a task of its own, until `close()`. Requests come from any task of any event loop.

    `on_new_tools` is awaited, with this connection, each time that the server says that its tools have changed.
    `elicitation` handles the server's questions to a person; `protocol` is the version to use.
    """

    def __init__(
        self,
        target: Target,
        on_new_tools: Callable[[MCPConnection], Coroutine[Any, Any, None]],
        elicitation: Elicitation | None = None,
        protocol: str = "auto",
    ) -> None:
        _need_sdk()
        self._protocol: Final = protocol
        self._elicitation: Final = elicitation
        self._target: Final = target
        self._loop: Final = asyncio.get_running_loop()
        self._log: Final = ServerLog(target.label)
        self._tool_list: Final = ToolListWatcher(target.label, lambda: on_new_tools(self))
        self._requests: Final = _RequestsInFlight()
        self._session = _Session()
        self._expired_client: Any = None
        self._reconnection: asyncio.Task[None] | None = None
        self._refusal = ""
        self._closed = False
        self._connect_timeout = 0.0
        self.shield: Final = BoundedShield(f"closing {target.label}")
        self.process: ServerProcess | None = None

    # --- Opening and closing ------------------------------------------------------------------------------------

    async def open(self, seconds: float) -> None:
        """Connect. Raises `ConfigurationError` when that fails or takes longer than `seconds`."""
        self._connect_timeout = seconds
        session = self._session = _Session()
        session.task = start_task(self._run(session), name=f"quiesce mcp {self._target.label}")
        await asyncio.wait((session.ready, session.task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not session.ready.done():
            raise self._with_stderr(
                ConfigurationError(
                    f"The MCP server {self._target.label} did not answer within {seconds:g} s.",
                    todo="Check that it speaks MCP, or raise connect_timeout.",
                )
            )
        session.client = session.ready.result()

    async def _run(self, session: _Session) -> None:
        """Open a session, keep it until it is left, and close it."""
        try:
            async with self._target.open(self) as client:
                session.ready.set_result(client)
                async with anyio.create_task_group() as watching:
                    watching.start_soon(self._tool_list.watch, client)
                    await session.leaving.wait()
                    session.client = None
                    watching.cancel_scope.cancel()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it was, the session has ended: later requests get an error
            self._refuse(session, error)
        finally:
            session.client = None
        if self.shield.interrupted:
            raise asyncio.CancelledError

    def client_options(self) -> dict[str, Any]:
        """The arguments for the SDK's client."""
        from mcp_types import Implementation

        return {
            "cache": None,
            "mode": self._protocol,
            "client_info": Implementation(name="quiesce", version=__version__),
            "message_handler": self._tool_list.on_message,
            "logging_callback": self._log.on_message,
            "log_level": self._log.level,
            "elicitation_callback": None if self._elicitation is None else self._elicitation.on_request,
        }

    def _refuse(self, session: _Session, error: BaseException) -> None:
        if session.ready.done():
            return
        refusal = ConfigurationError(
            f"The MCP server {self._target.label} cannot be used: {error_text(error).rstrip('.')}{self._exit_code()}.",
            todo="Check the command, or the address and the headers.",
        )
        refusal.__cause__ = error
        session.ready.set_exception(error if isinstance(error, ConfigurationError) else self._with_stderr(refusal))
        session.ready.exception()  # mark it as retrieved: the task that waited may have left meanwhile

    def _with_stderr(self, error: ConfigurationError) -> ConfigurationError:
        """Add the server's stderr as a note, which only a traceback shows."""
        if self.stderr:
            error.add_note("\n".join(("What the server wrote to its stderr, at last:", *self.stderr)))
        return error

    def leave(self, _: object = None) -> None:
        """End the current session."""
        self._session.leaving.set()

    async def close(self) -> None:
        """Disconnect, within a bound. From any event loop."""
        if asyncio.get_running_loop() is not self._loop:
            if not self._loop.is_closed():
                with suppress(ToolError):  # the loop has ended, and the connection with it
                    await self._there(self.close())
            return
        self._closed = True
        if self._session.task is None:
            return
        shield = BoundedShield(f"waiting for {self._target.label} to close")
        if self._reconnection is not None:
            self._reconnection.cancel()
            await shield.wait((self._reconnection,), seconds=FINAL_GRACE)
        session, task = self._session, self._session.task
        assert task is not None
        if session.ready.done():
            session.leaving.set()
        else:
            task.cancel()
        await shield.wait((task,), seconds=self._target.close_bound)
        if not task.done():
            task.cancel()
            await shield.wait((task,), seconds=self._target.close_bound + FINAL_GRACE)
        self._requests.forget()
        if shield.interrupted:
            raise asyncio.CancelledError

    # --- Requests -----------------------------------------------------------------------------------------------

    async def call(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        """Send a request. Raises `ToolError` when the server refuses it, and when the server has ended."""
        if asyncio.get_running_loop() is self._loop:
            return await self._call_here(request)
        if self._loop.is_closed():
            raise ToolError(f"The MCP server {self._target.label} is not connected any more.")
        return await self._there(self._call_here(request))

    async def _there(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do this in the loop of the connection. Raises `ToolError` when that loop ends before."""
        task = asyncio.current_task()
        sent = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._requests.elsewhere.add(sent)
        if self._loop.is_closed():
            self._requests.end()
        try:
            return await asyncio.wrap_future(sent)
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            if self._loop.is_closed() and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # it will never begin
            if task is not None and task.cancelling():
                raise
            raise ToolError(
                f"The connection to the MCP server {self._target.label} has ended, before it answered: "
                "whether it did what was asked is not known."
            ) from None
        finally:
            self._requests.elsewhere.discard(sent)

    async def _call_here(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        client = self._session.client
        if client is None:
            client = await self._reconnected(None)
        try:
            return await self._send(client, request)
        except _SessionExpired:  # the server has done nothing with the request, so it can be sent again
            return await self._send(await self._reconnected(client), request)

    async def _send(self, client: Any, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        with self._requests.one():
            try:
                return await request(client)
            except (asyncio.CancelledError, ToolError):
                raise
            except MCPError as error:
                if error.error.code == CONNECTION_CLOSED:
                    raise await self._ended(in_flight=True) from error
                kind = _SessionExpired if client is self._expired_client else ToolError
                raise kind(f"The MCP server {self._target.label} {refusal_text(error.error)}") from error
            except Exception as error:
                if self._session.client is None:
                    raise await self._ended(in_flight=True) from error
                raise ToolError(f"The call of MCP server {self._target.label} failed: {error_text(error)}.") from error

    async def _ended(self, *, in_flight: bool = False) -> ToolError:
        """The error for a request to a server that has ended; `in_flight` if it had been sent before."""
        unknown = ", before it answered: whether it did what was asked is not known." if in_flight else "."
        if self.process is None:
            why = f" {self._refusal}" if self._refusal and not in_flight else ""
            return ToolError(f"The connection to the MCP server {self._target.label} has ended{unknown}{why}")
        # Its pipes close a moment before its exit code is known.
        await asyncio.wait((self.process.exited,), timeout=FINAL_GRACE)
        how = f" ({self.process.fault})" if self.process.fault else self._exit_code()
        return ToolError(f"The MCP server {self._target.label} has ended{how}{unknown}")

    def _exit_code(self) -> str:
        code = None if self.process is None else self.process.returncode
        return "" if code is None else f" (exit code {code})"

    # --- Reconnecting -------------------------------------------------------------------------------------------

    def on_session_expired(self) -> None:
        """The server does not know our session any more."""
        self._expired_client = self._session.client

    async def _reconnected(self, old: Any) -> Any:
        """A client other than `old`. All requests share one new session. Raises `ToolError` when there is none."""
        if self._session.client is old:
            if self._closed or not self._target.comes_back:
                raise await self._ended()
            if self._reconnection is None or self._reconnection.done():
                name = f"quiesce mcp {self._target.label} again"
                self._reconnection = start_task(self._reconnect(), name=name)
        if self._reconnection is not None:
            await asyncio.wait((self._reconnection,))
        if self._session.client is None:
            raise await self._ended()
        return self._session.client

    async def _reconnect(self) -> None:
        with suppress(TimeoutError):  # the other requests in flight are to be refused by the server, each for itself
            async with asyncio.timeout(_EXPIRY_GRACE):
                await self._requests.wait()
        session = self._session
        session.leaving.set()
        if session.task is not None:
            await asyncio.wait((session.task,), timeout=self._target.close_bound)
            session.task.cancel()
        try:
            await self.open(self._connect_timeout)
        except ConfigurationError as error:
            _log.warning("%s", error.what)
            self._refusal = error.what
        else:
            self._refusal = ""
            self._tool_list.notify()

    # --- State --------------------------------------------------------------------------------------------------

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's stderr."""
        return () if self.process is None else tuple(self.process.stderr)

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use."""
        return None if self._session.client is None else self._session.client.instructions


class _SessionExpired(ToolError):
    """The server refused a request because it does not know our session any more."""


def _need_sdk() -> None:
    try:
        import mcp  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ConfigurationError("MCP needs the extra 'mcp'.", todo="pip install 'quiesce[mcp]'") from error
