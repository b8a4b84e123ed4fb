"""`quiesce COMMAND ...`: finds the command and runs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .._version import __version__
from ..errors import QuiesceError
from . import sessions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. What goes wrong is said in one line on stderr."""
    parser = argparse.ArgumentParser(prog="quiesce", description="Agents that can be stopped.")
    parser.add_argument("--version", action="version", version=f"quiesce {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    sessions.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except QuiesceError as error:
        print(f"quiesce: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has left, which is their right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
