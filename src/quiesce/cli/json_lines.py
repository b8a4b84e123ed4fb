"""`--json`: one JSON object per line on standard output."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from .sanitize import CONTROLS, clean

_T = TypeVar("_T")


def add_option(parser: argparse.ArgumentParser, what: str) -> None:
    """The option `--json`. `what` says what a line is."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, one object per line")


def print_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(escaped(msgspec.json.encode(value).decode()), flush=True)


def tell(options: argparse.Namespace, text: str, value: Any) -> None:
    """Print `text`, or `value` as a line of JSON with --json."""
    if options.json:
        print_line(value)
    else:
        print(clean(text))


def tell_all(
    options: argparse.Namespace,
    found: Iterable[_T],
    text: Callable[[_T], str],
    none: str,
    value: Callable[[_T], Any] = lambda each: each,
) -> None:
    """Print each item of `found` with `tell`. Without any, print `none`, but nothing with --json."""
    listed = list(found)
    for each in listed:
        tell(options, text(each), value(each))
    if not listed and not options.json:
        print(none)


def escaped(written: str) -> str:
    """JSON with the control characters that it allows in strings, and that a terminal obeys, as escapes."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
