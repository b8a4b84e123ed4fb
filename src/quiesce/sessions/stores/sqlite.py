"""Sessions in one SQLite file: the default on disk. No server, many processes, write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

from ..queue.subscribers import Subscribers
from .sql_store import SQLStore
from .sqlite_file import SQLiteFile
from .sqlite_listener import SQLiteListener


class SQLiteStore(SQLStore):
    """Sessions in the file at `path`, which is made when it is first written.

    What is saved survives the end of the process, however it ends. `power_safe=True` makes every batch wait for the
    disk, so that it survives a power cut too; without it the last moments before one may be lost, never the rest.
    """

    def __init__(self, path: str | os.PathLike[str], *, power_safe: bool = False) -> None:
        subscribers = Subscribers()
        file = SQLiteFile(path, subscribers.tell, power_safe=power_safe)
        super().__init__(file, subscribers, SQLiteListener(subscribers, file.connected), file.path.name)
        self._file = file

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"
