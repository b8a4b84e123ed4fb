"""Log records of a worker process, which go to the host."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

from ...processes.plain_values import to_plain


class LogForwarding(logging.Handler):
    """Sends log records to the host, where the program's own handlers take them."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send_to_host: Final = send
        self._pid: Final = os.getpid()

    def install(self) -> None:
        """Be the root's handler; again, when a tool has put its own in place of it."""
        if self not in logging.root.handlers:
            logging.root.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; a child that the tool forked has only its output."""
        try:
            if os.getpid() == self._pid:
                self._send(record)
            else:
                sys.stderr.write(f"{record.levelname}:{record.name}:{self.format(record)}\n")
        except Exception:  # a record that cannot be formatted is no reason for a tool to fail
            self.handleError(record)

    def _send(self, record: logging.LogRecord) -> None:
        plain = dict(record.__dict__, msg=record.getMessage(), args=None, exc_info=None)
        if record.exc_info and record.exc_info[0] is not None:
            plain["exc_text"] = record.exc_text or "".join(traceback.format_exception(*record.exc_info)).rstrip()
        try:
            self._send_to_host("log", to_plain(plain))
        except (OSError, EOFError):
            raise
        except Exception:
            self._send_to_host("log", {key: value for key, value in plain.items() if isinstance(value, str | int)})
