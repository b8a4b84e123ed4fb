"""Changes of a server's tool list: notifications, and the update that follows each of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ..errors import QuiesceError
from .error_text import error_text

_log: Final = logging.getLogger("quiesce")


class ToolListWatcher:
    """Awaits `update` each time that a server says that its tools have changed. `label` names the server in logs."""

    def __init__(self, label: str, update: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._label: Final = label
        self._update: Final = update
        self._changed: Final = asyncio.Event()

    def notify(self) -> None:
        """The tools have changed, or may have: the session is a new one."""
        self._changed.set()

    async def on_message(self, message: object) -> None:
        """Called by the SDK's client with each notification. No request can be sent to the server from here."""
        import mcp_types

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.notify()

    async def watch(self, client: Any) -> None:
        """Wait for changes while the session lasts. From protocol 2026-07-28 on, a client subscribes to them."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    await self._list_again()  # a change before the subscription is not notified
                    async for _ in changes:
                        await self._list_again()
            except Exception as error:  # a server without notifications is usable as before
                _log.debug("The MCP server %s tells no more of changes: %s", self._label, error_text(error))
            return
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._list_again()

    async def _list_again(self) -> None:
        try:
            await self._update()
        except QuiesceError as error:
            _log.warning("The new tools of an MCP server cannot be read: %s", error)
