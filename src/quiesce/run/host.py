"""Whether runs can be started where the caller is: not under trio, and not when gevent has replaced the threads."""

from __future__ import annotations

import sys
from typing import Any, Final

from ..errors import ConfigurationError

_NEEDED: Final = ("threading", "select", "socket")
_NOTHING_STARTED: Final = "Nothing was started."


def check_host() -> None:
    """Raises `ConfigurationError` where a run could not be started, or not be stopped."""
    modules = sys.modules
    monkey: Any = modules.get("gevent.monkey")
    if monkey is not None and any(map(monkey.is_module_patched, _NEEDED)):
        raise ConfigurationError(
            "Runs need real threads and sockets, and gevent has replaced them.",
            kept=_NOTHING_STARTED,
            todo="Start agents in a process that gevent.monkey has not patched.",
        )
    sniffio: Any = modules.get("sniffio")  # trio brings it along, and tells it where trio runs
    if sniffio is not None and _library(sniffio) == "trio":
        raise ConfigurationError(
            "Runs need an asyncio loop, and the caller runs under trio.",
            kept=_NOTHING_STARTED,
            todo="Call the agent in a thread: await trio.to_thread.run_sync(agent, prompt).",
        )


def _library(sniffio: Any) -> str:
    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return ""
