"""`quiesce completion bash | zsh | fish`: completion of the command in a shell."""

from __future__ import annotations

import argparse
from typing import Final, cast

from ..errors import ConfigurationError
from .main import Subparsers, make_parser

SHELLS: Final = ("bash", "zsh", "fish")


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes `quiesce` in a shell",
        epilog='For bash, in ~/.bashrc: eval "$(quiesce completion bash)". For zsh: the output as a file _quiesce in a '
        "folder of $fpath. For fish: the output as ~/.config/fish/completions/quiesce.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise ConfigurationError(
            "The scripts for shells are made by shtab.", todo='Install it with: pip install "quiesce[completion]"'
        ) from error
    parser = make_parser()
    _complete_files(parser, shtab.FILE)
    print(shtab.complete(parser, options.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: object) -> None:
    """Let the options that take a file complete files."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            for each in cast("dict[str, argparse.ArgumentParser]", action.choices).values():
                _complete_files(each, files)
        elif action.dest in ("key_file", "receipts", "output", "file", "target"):
            action.complete = files  # pyright: ignore[reportAttributeAccessIssue]
