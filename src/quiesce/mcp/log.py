"""The log messages of MCP servers, in this process's log: the logger is `quiesce.mcp`."""

from __future__ import annotations

import logging
from typing import Any, Final

from ..tools.output import as_json

_log: Final = logging.getLogger("quiesce.mcp")
_MAX_LENGTH: Final = 10_000
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


class ServerLog:
    """Writes the messages of one server to the log. Never shown to a model."""

    def __init__(self, label: str) -> None:
        self._label: Final = label

    @property
    def level(self) -> str:
        """The lowest level that the logger writes: the server is asked for this level."""
        return next((name for name, level in _LEVELS.items() if _log.isEnabledFor(level)), "emergency")

    async def on_message(self, params: Any) -> None:
        """Called by the SDK's client with each message."""
        text = params.data if isinstance(params.data, str) else as_json(params.data)
        _log.log(_LEVELS[params.level], "%s: %s", self._label, text[:_MAX_LENGTH])
