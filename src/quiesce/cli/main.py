"""The dispatcher of the `quiesce` command.

A subcommand is a module with `add_parser(subparsers)`, which sets `run=` as a default: a function that takes the parsed
arguments and returns the exit code. Modules must be cheap to import; heavy imports belong in `run`.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

from .._version import __version__
from ..errors import QuiesceError

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]

# The modules in this package that have subcommands, in the order in which --help lists them.
MODULES: Final = (
    "chat",
    "run",
    "ps",
    "stop",
    "attach",
    "approve",
    "freeze",
    "cap",
    "webhook",
    "workers",
    "serve",
    "worker",
    "key",
    "sessions",
    "completion",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character must not end a run
    parser = make_parser()
    options = parser.parse_args(arguments)
    run: Callable[[Any], int] | None = getattr(options, "run", None)
    if run is None:
        parser.print_help()
        return 2
    try:
        return run(options)
    except QuiesceError as error:
        print(f"quiesce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _CommandParser(argparse.ArgumentParser):
    """A parser whose subcommands refuse what they do not know with their own usage, not with that of all commands."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments; unknown ones are an error."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command, with all its subcommands."""
    parser = _CommandParser(prog="quiesce", description="Agents that can be stopped at any instant.")
    parser.add_argument(
        "--version", action="version", version=f"quiesce {__version__}", help="print the version and leave"
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in MODULES:
        import_module(f"{__package__}.{name}").add_parser(subparsers)
    return parser
