"""`quiesce key NAME --key-file FILE`: an API key for the server."""

from __future__ import annotations

import argparse
from pathlib import Path

from .json_lines import add_option, tell
from .main import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("key", help="make an API key for `quiesce serve`")
    parser.add_argument("name", help="the owner of the key; runs belong to this name")
    parser.add_argument("--key-file", type=Path, required=True, help="the file that stores the hash of the key")
    add_option(parser, "the key and its name")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the key and print it; it cannot be shown again."""
    from ..server.keys import add_key

    key = add_key(options.key_file, options.name)
    tell(options, key, {"name": options.name, "key": key})
    return 0
