"""From what a user writes to the store that they mean."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from ...errors import ConfigurationError
from ..store import Store

_known: Final[dict[str, Store]] = {}


def resolve_store(where: object = None) -> Store:
    """A `Store`, from itself, a path, or a URL; None is the user's own file. The same place gives the same store.

    Raises `ConfigurationError` for anything else.
    """
    match where:
        case None:
            return _shared(f"sqlite:///{default_path()}")
        case os.PathLike():
            return _shared(f"sqlite:///{Path(where).expanduser().absolute()}")  # pyright: ignore[reportUnknownArgumentType]
        case str() if "://" in where or where == "memory":
            return _shared(where)
        case str():
            return _shared(f"sqlite:///{Path(where).expanduser().absolute()}")
        case Store():
            return where
        case _:
            raise ConfigurationError(
                f"store={where!r} is not a store.", todo='Use a path, a URL such as "postgresql://...", or a Store.'
            )


def default_path() -> Path:
    """The user's own file: `$QUIESCE_HOME/sessions.db`, or in the folder where their system keeps such data."""
    home = os.environ.get("QUIESCE_HOME")
    if home:
        return Path(home).expanduser().absolute() / "sessions.db"
    match sys.platform:
        case "win32":
            data = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case "darwin":
            data = Path.home() / "Library" / "Application Support"
        case _:
            data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "quiesce" / "sessions.db"


def _shared(url: str) -> Store:
    store = _known.get(url)
    if store is None:
        store = _known.setdefault(url, _make(url))
    return store


def _make(url: str) -> Store:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from .memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from .sqlite import SQLiteStore

            return SQLiteStore(rest.removeprefix("/") if not rest.startswith("//") else rest[1:])
        case "postgres" | "postgresql":
            from .postgres import PostgresStore

            return PostgresStore(url)
        case _:
            raise ConfigurationError(
                f"There is no store for {scheme}://.", todo="Use a path, sqlite:///path, or postgresql://..."
            )
