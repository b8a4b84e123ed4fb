"""`quiesce chat`: an agent in the terminal, with a stop key."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..sessions.stores.resolve import default_path, resolve_store
from .agent_options import add_options, chosen_agent
from .main import Subparsers

if TYPE_CHECKING:
    from .chat_controller import ChatController


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("chat", help="chat with an agent; Esc stops it")
    add_options(parser)
    parser.add_argument("--plain", action="store_true", help="line by line instead of full screen")
    parser.add_argument("--session", metavar="NAME", help="continue this saved conversation, or start it")
    parser.add_argument(
        "--store", metavar="WHERE", help=f"path or URL of the store for conversations (default: {default_path()})"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Chat until the user leaves."""
    from .chat_controller import ChatController
    from .chat_sessions import ChatSessions

    agent = chosen_agent(options)
    is_saved = options.session is not None or options.store is not None
    store = resolve_store(options.store) if is_saved else None
    try:
        return _chat(options, ChatController(agent, ChatSessions(agent, store, options.session)))
    finally:
        if store is not None:
            store.close().result()


def _chat(options: argparse.Namespace, controller: ChatController) -> int:
    if not options.plain and all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)):
        if find_spec("textual") is not None:
            from .chat_screen import ChatApp

            app = ChatApp(controller)
            app.run()
            return app.return_code or 0
        print('For the full screen: pip install "quiesce[tui]"', file=sys.stderr)
    from .chat_plain import PlainChat

    return PlainChat(controller).run()
