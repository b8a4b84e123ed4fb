"""From what a user writes to the store that they mean."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from ...errors import ConfigurationError
from ..store import SessionStore, Store

if TYPE_CHECKING:
    from .local import LocalStore

_by_url: Final[dict[str, SessionStore]] = {}
# By the id of the user's store, which lives as long as its entry.
_local: Final[WeakValueDictionary[int, LocalStore]] = WeakValueDictionary()


def resolve_store(where: object = None) -> SessionStore:
    """A store from itself, a path, or a URL; None is the user's own file. The same place gives the same store.

    Raises `ConfigurationError` for anything else.
    """
    match where:
        case None:
            return _shared(f"sqlite:///{default_path()}")
        case os.PathLike():
            return _shared(_file_url(os.fspath(where)))  # pyright: ignore[reportUnknownArgumentType]
        case str() if where.startswith("sqlite://"):
            return _shared(_file_url(where.removeprefix("sqlite://").removeprefix("/")))
        case str() if "://" in where or where == "memory":
            return _shared(where)
        case str():
            return _shared(_file_url(where))
        case SessionStore():
            return where
        case Store():
            from .local import LocalStore

            return _local.get(id(where)) or _local.setdefault(id(where), LocalStore(where))
        case _:
            raise ConfigurationError(
                f"store={where!r} is not a store.", todo='Use a path, a URL such as "postgresql://...", or a Store.'
            )


def _file_url(path: str | bytes) -> str:
    try:
        is_valid = bool(path.strip()) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise ConfigurationError(f"store={path!r} is not the name of a file.", todo='Use a path such as "sessions.db".')
    return f"sqlite:///{Path(os.fsdecode(path)).expanduser().absolute()}"


def default_path() -> Path:
    """The user's own file: `$QUIESCE_HOME/sessions.db`, or in the folder where their system keeps such data."""
    home = os.environ.get("QUIESCE_HOME")
    if home:
        return Path(home).expanduser().absolute() / "sessions.db"
    from platformdirs import user_data_path

    path = user_data_path("quiesce", appauthor=False) / "sessions.db"
    if sys.platform == "darwin" and not path.exists():  # it was always here when XDG_DATA_HOME did not count
        before = Path.home() / "Library/Application Support/quiesce/sessions.db"
        return before if before.exists() else path
    return path


def _shared(url: str) -> SessionStore:
    store = _by_url.get(url)
    if store is None:
        store = _by_url.setdefault(url, _make(url))
    return store


def _make(url: str) -> SessionStore:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from .memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from .sqlite import SQLiteStore

            return SQLiteStore(rest.removeprefix("/"))
        case "postgres" | "postgresql":
            from .postgres import PostgresStore

            return PostgresStore(url)
        case _:
            raise ConfigurationError(
                f"There is no store for {scheme}://.", todo="Use a path, sqlite:///path, or postgresql://..."
            )
