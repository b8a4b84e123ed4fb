"""The `quiesce` command: a table of subcommands, each in a module that is loaded when it is needed."""

from .main import main

__all__ = ["main"]
