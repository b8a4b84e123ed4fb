"""One connection to an MCP server: a task of its own that opens it, keeps it and closes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import anyio

from .._version import __version__
from ..cancellation import BoundedShield
from ..errors import ConfigurationError, QuiesceError, ToolError
from ..tools.policy import FINAL_GRACE
from .elicitation import Elicitation
from .log import Log
from .stdio import NO_ANSWER, ServerProcess
from .transports import Target

_log: Final = logging.getLogger("quiesce")

# How long the other calls of a session that a server has forgotten may take to be refused as well.
_HEARING_IT: Final = 1.0

_T = TypeVar("_T")


class Connection:
    """Keeps a connection open in a task of its own, until `close()`. Calls come from any task of any event loop.

    `on_new_tools` is awaited, with this, each time that the server says that its tools are others now; `elicitation`
    hears what the server asks a person.
    """

    def __init__(
        self,
        target: Target,
        on_new_tools: Callable[[Connection], Coroutine[Any, Any, None]],
        elicitation: Elicitation | None = None,
    ) -> None:
        _need_sdk()
        self._elicitation: Final = elicitation
        self._target: Final = target
        self._loop: Final = asyncio.get_running_loop()
        self._on_new_tools: Final = on_new_tools
        self._log: Final = Log(target.label)
        self._tools_changed: Final = asyncio.Event()
        self._ready: asyncio.Future[Any] = self._loop.create_future()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False
        self._forgotten: Any = None
        self._in_flight = 0
        self._all_answered: Final = asyncio.Event()
        self._all_answered.set()
        self._seconds = 0.0
        self._client: Any = None
        self.shield: Final = BoundedShield(f"closing {target.label}")
        self.process: ServerProcess | None = None

    # --- Living -------------------------------------------------------------------------------------------------

    async def open(self, seconds: float) -> None:
        """Connect. Raises `ConfigurationError` when that fails or takes too long."""
        self._seconds = seconds
        self._ready = self._loop.create_future()
        self._leaving = asyncio.Event()
        self._task = asyncio.create_task(self._live(), name=f"quiesce mcp {self._target.label}")
        await asyncio.wait((self._ready, self._task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            raise self._with_stderr(
                ConfigurationError(
                    f"The MCP server {self._target.label} did not answer within {seconds:g} s.",
                    todo="Check that it speaks MCP, or raise connect_timeout.",
                )
            )
        self._client = self._ready.result()

    async def _live(self) -> None:
        try:
            async with self._target.open(self) as client:
                self._ready.set_result(client)
                async with anyio.create_task_group() as watching:
                    watching.start_soon(self._watch_tools, client)
                    await self._leaving.wait()
                    self._client = None
                    watching.cancel_scope.cancel()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever ended it, those who call from now on are told that it has ended
            self._refuse(error)
        finally:
            self._client = None
        if self.shield.interrupted:
            raise asyncio.CancelledError

    def client_options(self) -> dict[str, Any]:
        """What the SDK's client is made with."""
        from mcp_types import Implementation

        return {
            "cache": None,
            "client_info": Implementation(name="quiesce", version=__version__),
            "message_handler": self.on_message,
            "logging_callback": self._log.hear,
            "log_level": self._log.level,
            "elicitation_callback": None if self._elicitation is None else self._elicitation.hear,
        }

    def _refuse(self, error: BaseException) -> None:
        if self._ready.done():
            return
        refusal = ConfigurationError(
            f"The MCP server {self._target.label} cannot be used: {_in_short(error).rstrip('.')}{self._exit_code()}.",
            todo="Check the command, or the address and the headers.",
        )
        refusal.__cause__ = error
        self._ready.set_exception(error if isinstance(error, ConfigurationError) else self._with_stderr(refusal))
        self._ready.exception()  # whoever waited may have left meanwhile

    def _with_stderr(self, error: ConfigurationError) -> ConfigurationError:
        """With what the server complained of, where only whoever reads the traceback sees it."""
        if self.stderr:
            error.add_note("\n".join(("What the server wrote to its stderr, at last:", *self.stderr)))
        return error

    def leave(self, _: object = None) -> None:
        """End the connection: the server has ended, or the session is to be another."""
        self._leaving.set()

    async def close(self) -> None:
        """Disconnect, within a bound. From any event loop."""
        if asyncio.get_running_loop() is not self._loop:
            if not self._loop.is_closed():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), self._loop))
            return
        self._closed = True
        if self._task is None:
            return
        shield = BoundedShield(f"waiting for {self._target.label} to close")
        if self._renewal is not None:
            self._renewal.cancel()
            await shield.wait((self._renewal,), seconds=FINAL_GRACE)
        if self._ready.done():
            self._leaving.set()
        else:
            self._task.cancel()
        await shield.wait((self._task,), seconds=self._target.close_bound)
        if not self._task.done():
            self._task.cancel()
            await shield.wait((self._task,), seconds=self._target.close_bound + FINAL_GRACE)
        if shield.interrupted:
            raise asyncio.CancelledError

    # --- Hearing of new tools -----------------------------------------------------------------------------------

    async def on_message(self, message: object) -> None:
        """What the SDK's client calls with what the server says unasked. Nothing may be asked of the server here."""
        import mcp_types

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._tools_changed.set()

    async def _watch_tools(self, client: Any) -> None:
        """Where the protocol says that changes have to be asked for (2026-07-28 and later), ask for them; then wait."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    await self._list_again()  # what changed before this is not told any more
                    async for _ in changes:
                        await self._list_again()
            except Exception as error:  # one who does not tell of changes is as good a server as before
                _log.debug("The MCP server %s tells no more of changes: %s", self._target.label, _in_short(error))
            return
        while True:
            await self._tools_changed.wait()
            self._tools_changed.clear()
            await self._list_again()

    async def _list_again(self) -> None:
        try:
            await self._on_new_tools(self)
        except QuiesceError as error:
            _log.warning("The new tools of an MCP server cannot be read: %s", error)

    # --- Calling ------------------------------------------------------------------------------------------------

    async def call(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        """Make a request. Raises `ToolError` for what the server refuses, and when there is no server any more."""
        if asyncio.get_running_loop() is self._loop:
            return await self._call_here(request)
        if self._loop.is_closed():
            raise ToolError(f"The MCP server {self._target.label} is not connected any more.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._call_here(request), self._loop))

    async def _call_here(self, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        client = self._client if self._client is not None else await self._renewed(None)
        try:
            return await self._ask(client, request)
        except _Forgotten:  # it has done nothing with the request, so it can be asked again
            return await self._ask(await self._renewed(client), request)

    async def _ask(self, client: Any, request: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        self._in_flight += 1
        self._all_answered.clear()
        try:
            return await request(client)
        except (asyncio.CancelledError, ToolError):
            raise
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise await self._gone(in_flight=True) from error
            kind = _Forgotten if client is self._forgotten else ToolError
            raise kind(f"The MCP server {self._target.label} {_words(error.error)}") from error
        except Exception as error:
            if self._client is None:
                raise await self._gone(in_flight=True) from error
            raise ToolError(f"The call of MCP server {self._target.label} failed: {_in_short(error)}.") from error
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._all_answered.set()

    async def _gone(self, *, in_flight: bool = False) -> ToolError:
        unknown = ", before it answered: whether it did what was asked is not known." if in_flight else "."
        if self.process is None:
            return ToolError(f"The connection to the MCP server {self._target.label} has ended{unknown}")
        # Its pipes close a moment before its exit code is known.
        await asyncio.wait((self.process.exited,), timeout=FINAL_GRACE)
        how = f" ({self.process.fault})" if self.process.fault else self._exit_code()
        return ToolError(f"The MCP server {self._target.label} has ended{how}{unknown}")

    def _exit_code(self) -> str:
        code = None if self.process is None else self.process.returncode
        return "" if code is None else f" (exit code {code})"

    # --- Beginning again ----------------------------------------------------------------------------------------

    def forget(self) -> None:
        """The server does not know our session any more."""
        self._forgotten = self._client

    async def _renewed(self, old: Any) -> Any:
        """A client other than `old`; one new session for all who need it. Raises `ToolError` when there is none."""
        if self._client is old:
            if self._closed or not self._target.comes_back:
                raise await self._gone()
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.create_task(self._renew(), name=f"quiesce mcp {self._target.label} again")
        if self._renewal is not None:
            await asyncio.wait((self._renewal,))
        if self._client is None:
            raise await self._gone()
        return self._client

    async def _renew(self) -> None:
        with suppress(TimeoutError):  # what else is under way is forgotten too: each call is to hear it for itself
            async with asyncio.timeout(_HEARING_IT):
                await self._all_answered.wait()
        self._leaving.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=self._target.close_bound)
            self._task.cancel()
        try:
            await self.open(self._seconds)
        except ConfigurationError as error:
            _log.warning("%s", error.what)
        else:
            self._tools_changed.set()

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's stderr."""
        return () if self.process is None else tuple(self.process.stderr)

    @property
    def instructions(self) -> str | None:
        """What the server says about how to use it."""
        return None if self._client is None else self._client.instructions


class _Forgotten(ToolError):
    """The server refused because it does not know our session any more."""


def _words(error: Any) -> str:
    return f"{error.message}." if error.data == NO_ANSWER else f"says: {error.message}"


def _in_short(error: BaseException) -> str:
    """The first real error of what may be a group of them, in one line."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED
    from pydantic import ValidationError

    first: Any = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(first, MCPError):
        if first.error.code == CONNECTION_CLOSED:
            return "it closed the connection"
        return f"it {_words(first.error)}"
    if isinstance(first, ValidationError):
        fault = first.errors()[0]
        return f"it sent what the protocol does not allow ({'.'.join(map(str, fault['loc']))}: {fault['msg']})"
    text = str(first).splitlines()  # pyright: ignore[reportUnknownArgumentType]
    name = type(first).__name__  # pyright: ignore[reportUnknownArgumentType]
    return f"{name}: {text[0]}" if text else name


def _need_sdk() -> None:
    try:
        import mcp  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ConfigurationError("MCP needs the extra 'mcp'.", todo="pip install 'quiesce[mcp]'") from error
