"""Checks of the sessions and stores that a user gives an agent or a run. Imported when one is given."""

from __future__ import annotations

from os import PathLike
from typing import Final
from weakref import WeakValueDictionary

from ..errors import ConfigurationError
from ..sessions import Session, SessionStore, Store, resolve_store
from .argument_checks import check_instance


def check_store(store: object) -> None:
    """Raises `ConfigurationError` for what cannot be a store."""
    check_instance(
        "store", store, (str, PathLike, SessionStore, Store), 'a path, a URL such as "postgresql://...", or a Store'
    )
    if store == "":
        raise ConfigurationError("store='' names no store.", todo="Use a path, or leave store= out for your own file.")


def check_session(session: object) -> None:
    """Raises `ConfigurationError` for what is neither a session nor the name of one."""
    check_instance("session", session, (str, Session), "the name of a session, or a Session")


def shared_session(session: str | Session, store: object) -> Session:
    """A session by its name; prompts of one process to the same name share one `Session`.

    Raises `ConfigurationError` for a `Session` and another store.
    """
    if isinstance(session, Session):
        if store is not None and resolve_store(store) is not session.store:
            raise ConfigurationError(f"{session!r} has its own store.", todo="Leave store= out, or give the name only.")
        return session
    found = resolve_store(store)
    shared = _sessions.get((id(found), session))
    if shared is None:
        shared = _sessions.setdefault((id(found), session), Session(session, found))
    return shared


# Keyed by the identity of the store, which a session keeps alive as long as it is here itself.
_sessions: Final[WeakValueDictionary[tuple[int, str], Session]] = WeakValueDictionary()
