"""`quiesce chat`: an agent in the terminal, with a stop key."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from .choose import add_options, chosen_agent
from .main import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("chat", help="talk to an agent; Esc stops it")
    add_options(parser)
    parser.add_argument("--plain", action="store_true", help="line by line, without the full screen")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Talk until the person leaves."""
    from .chat_talk import Talk

    talk = Talk(chosen_agent(options))
    if not options.plain and all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)):
        if find_spec("textual") is not None:
            from .chat_screen import ChatApp

            app = ChatApp(talk)
            app.run()
            return app.return_code or 0
        print('For the full screen: pip install "quiesce[tui]"', file=sys.stderr)
    from .chat_plain import PlainChat

    return PlainChat(talk).run()
