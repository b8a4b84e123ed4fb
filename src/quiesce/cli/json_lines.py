"""`--json`: one JSON object per line on standard output."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from .sanitize import CONTROLS


def add_option(parser: argparse.ArgumentParser, what: str) -> None:
    """The option `--json`. `what` says what a line is."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, one object per line")


def print_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(escaped(msgspec.json.encode(value).decode()), flush=True)


def escaped(written: str) -> str:
    """JSON with the control characters that it allows in strings, and that a terminal obeys, as escapes."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
