"""`quiesce freeze` and `quiesce unfreeze`: stop the runs of an agent, and refuse new ones until it is released."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..cancellation import Mode
from .json_lines import add_option, print_line, tell_all
from .main import Subparsers
from .remote import add_mode_option, add_store_option, in_fleet
from .sanitize import clean

if TYPE_CHECKING:
    from ..fleet.client import Fleet
    from ..fleet.freeze_table import Freeze


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommands."""
    freeze = subparsers.add_parser("freeze", help="stop all runs of an agent of a fleet, and refuse new ones")
    _add_options(freeze, "freeze")
    add_mode_option(freeze, "stop its runs")
    freeze.add_argument("--list", action="store_true", help="only print the freezes on record, the newest last")
    freeze.set_defaults(run=run, usage_error=freeze.error)
    unfreeze = subparsers.add_parser("unfreeze", help="release a freeze: runs of the agent may start again")
    _add_options(unfreeze, "release")
    unfreeze.set_defaults(run=run_release, usage_error=unfreeze.error)


def _add_options(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--agent", metavar="NAME", help=f"the agent to {verb}")
    parser.add_argument("--all", action="store_true", help=f"{verb} all agents")
    parser.add_argument("--reason", default="", help="the reason, for the record and for clients that are refused")
    parser.add_argument("--by", metavar="WHO", help="who does this, for the record (default: this user and machine)")
    add_store_option(parser, only=True)
    add_option(parser, "the freezes" if verb == "freeze" else "the freeze that is released")


def run(options: argparse.Namespace) -> int:
    """Freeze, or print the record."""
    if options.list:
        return in_fleet(options, lambda fleet: _show_record(fleet, options))
    _check_target(options)

    async def freeze(fleet: Fleet) -> int:
        made, stopped = await fleet.freezes.freeze(
            options.agent, by=_who(options), reason=options.reason, mode=Mode(options.mode)
        )
        if options.json:
            print_line({**msgspec.to_builtins(made), "stopped": stopped})
        else:
            print(clean(made.words))
            print(stops_text(stopped))
        return 0

    return in_fleet(options, freeze)


def run_release(options: argparse.Namespace) -> int:
    """Release a freeze; returns 1 when there is none."""
    _check_target(options)

    async def release(fleet: Fleet) -> int:
        released = await fleet.freezes.release(options.agent, by=_who(options), reason=options.reason)
        what = f"The agent {options.agent!r} is" if options.agent else "All agents are"
        if not options.json:
            print(clean("There is no such freeze." if released is None else f"{what} released."))
            await show_active(fleet)
        elif released is not None:
            print_line(released)
        return 1 if released is None else 0

    return in_fleet(options, release)


def _check_target(options: argparse.Namespace) -> None:
    if (options.agent is not None) == options.all:
        options.usage_error("name an agent with --agent, or use --all")


def _who(options: argparse.Namespace) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container a user may have no name
        user = str(os.getuid())
    return options.by or f"{user}@{socket.gethostname()}"


async def show_active(fleet: Fleet) -> None:
    """Print the freezes that hold."""
    for each in await fleet.freezes.list(active_only=True):
        print(clean(f"FROZEN since {_time(each.created)}: {each.words}"))


def stops_text(stopped: Sequence[str]) -> str:
    """For how many runs a stop is accepted."""
    return f"The stop is accepted for {len(stopped)} run{'' if len(stopped) == 1 else 's'}."


async def _show_record(fleet: Fleet, options: argparse.Namespace) -> int:
    found = sorted(await fleet.freezes.list(limit=1000), key=lambda each: each.id)
    tell_all(options, found, _line, "No agent was ever frozen.")
    return 0


def _line(freeze: Freeze) -> str:
    began = f"{_time(freeze.created)}  {freeze.agent or 'all agents'}  frozen by {freeze.frozen_by}"
    why = f" ({freeze.reason})" if freeze.reason else ""
    if freeze.released is None:
        return f"{began}{why}; it holds"
    because = f" ({freeze.release_reason})" if freeze.release_reason else ""
    return f"{began}{why}; released {_time(freeze.released)} by {freeze.released_by}{because}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
