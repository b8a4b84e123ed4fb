"""`quiesce chat`: an agent in the terminal, with a stop key."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..sessions.stores.resolve import default_path, resolve_store
from .agent_options import add_options, chosen_agent, take_agent
from .main import Subparsers
from .remote import KEY_VARIABLE, at_server

if TYPE_CHECKING:
    from ..sessions import SessionStore
    from .chat_backend import Backend


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("chat", help="chat with an agent; Esc stops it")
    parser.add_argument("word", nargs="?", metavar="MODULE:AGENT", help="the same as --agent")
    add_options(parser)
    parser.add_argument("--plain", action="store_true", help="line by line instead of full screen")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="NAME", help="continue this saved conversation, or start it")
    which.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="NAME",
        help="continue a saved conversation that exists: this one, or the one that was used last",
    )
    parser.add_argument(
        "--store", metavar="WHERE", help=f"path or URL of the store for conversations (default: {default_path()})"
    )
    parser.add_argument("--url", help="chat with an agent of this server; --agent is then the name that it has there")
    parser.add_argument(
        "--key", help=f"with --url: the API key; {KEY_VARIABLE} instead keeps it out of the process list"
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Chat until the user leaves."""
    if options.word is not None:
        take_agent(options, options.word)
    if options.url is not None:
        if options.model is not None or options.store is not None:
            options.usage_error("--url has the models and the store of the server: leave out --model and --store")
        return _chat_with_server(options)
    if options.key is not None:
        options.usage_error("--key needs --url")
    from .chat_backend import LocalBackend
    from .chat_sessions import ChatSessions

    agent = chosen_agent(options)
    wanted = (options.session, options.store, options.resume)
    store = resolve_store(options.store) if any(each is not None for each in wanted) else None
    try:
        name = options.session if options.resume is None or store is None else _resumed(store, options.resume)
        return _chat(options, LocalBackend(agent, ChatSessions(agent, store, name)))
    finally:
        if store is not None:
            store.close().result()


def _resumed(store: SessionStore, name: str) -> str:
    """The name of the session to go on with. Raises `ConfigurationError` when there is none."""
    known = {info.name: info.updated for info in store.sessions().result() if not info.is_record}
    if name and name not in known:
        raise ConfigurationError(f"There is no session {name!r}.", todo="`quiesce sessions list` lists them.")
    if not known:
        raise ConfigurationError("There is no saved conversation yet.", todo="Start one with --session NAME.")
    return name or max(known, key=lambda each: known[each])


def _chat_with_server(options: argparse.Namespace) -> int:
    from ..client import Client
    from .chat_remote import RemoteBackend, check_server

    name = at_server(options, lambda client: check_server(client, options.agent, options.session, options.resume))
    client = Client(options.url, options.key or os.environ.get(KEY_VARIABLE))
    return _chat(options, RemoteBackend(client, options.agent, name))


def _chat(options: argparse.Namespace, backend: Backend) -> int:
    from .chat_controller import ChatController

    controller = ChatController(backend)
    if not options.plain and _is_full_terminal():
        if find_spec("textual") is not None:
            from .chat_screen import ChatApp

            app = ChatApp(controller)
            app.run()
            _leave_transcript(app.transcript)
            return app.return_code or 0
        print('For the full screen: pip install "quiesce[tui]"', file=sys.stderr)
    from .chat_plain import PlainChat

    return PlainChat(controller).run()


def _is_full_terminal() -> bool:
    """Whether the terminal can show a full screen."""
    is_dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    return not is_dumb and all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))


def _leave_transcript(text: str) -> None:
    """Print what was shown: the full screen leaves nothing in the terminal."""
    encoding = sys.stdout.encoding or "utf-8"
    with suppress(OSError):  # the terminal is gone
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
