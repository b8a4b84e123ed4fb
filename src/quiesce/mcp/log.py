"""What MCP servers log, in this process's log: the logger is `quiesce.mcp`."""

from __future__ import annotations

import logging
from typing import Any, Final

from ..tools.output import as_json

_log: Final = logging.getLogger("quiesce.mcp")
_LONGEST: Final = 10_000
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


class Log:
    """Takes what one server logs. Never shown to a model."""

    def __init__(self, label: str) -> None:
        self._label: Final = label

    @property
    def level(self) -> str:
        """The least that is worth sending: what the logger would not write is not asked for."""
        return next((name for name, level in _LEVELS.items() if _log.isEnabledFor(level)), "emergency")

    async def hear(self, params: Any) -> None:
        """What the SDK's client calls with each message."""
        text = params.data if isinstance(params.data, str) else as_json(params.data)
        _log.log(_LEVELS[params.level], "%s: %s", self._label, text[:_LONGEST])
