"""`quiesce stop RUN`: stop runs of a server, or of a fleet."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from ..cancellation import Mode
from .json_lines import add_option, print_line, tell
from .main import Subparsers
from .remote import (
    active_runs,
    add_mode_option,
    add_options,
    add_store_option,
    at_server,
    in_fleet,
    run_at_server,
    store_of,
)
from .sanitize import clean

if TYPE_CHECKING:
    from ..client import Client

REQUESTED: Final = 0
NOT_AT_REST: Final = 3
_AT_REST: Final = ("ended", "crashed")


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("stop", help="stop runs of a server, or of a fleet")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the run's id, or the beginning of it")
    parser.add_argument("--all", action="store_true", help="stop all your active runs; of a fleet, those of all owners")
    parser.add_argument("--agent", metavar="NAME", help="with --all and --store: only runs of this agent")
    add_options(parser)
    add_store_option(parser)
    add_mode_option(parser, "stop")
    parser.add_argument("--reason", default="", help="the reason, for the receipt")
    parser.add_argument("--undo", action="store_true", help="undo the calls of tools that have an undo")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=float,
        const=30.0,
        metavar="S",
        help="wait at most S seconds (default: 30) for the end, and print the receipt; exit code 3 if it has not ended",
    )
    add_option(parser, "each run (run, accepted, at_rest, receipt)")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Request the stops; returns 0 when all were requested, with --wait when all runs are at rest."""
    if bool(options.runs) == options.all:
        options.usage_error("name the runs to stop, or use --all")
    if store_of(options) is not None:
        from .fleet_store import stop_runs

        return in_fleet(options, lambda fleet: stop_runs(fleet, options))
    if options.agent is not None:
        options.usage_error("--agent needs --all and --store")
    return at_server(options, lambda client: _stop_all(client, options))


async def _stop_all(client: Client, options: argparse.Namespace) -> int:
    if options.all:
        chosen = [each.id for each in await active_runs(client)]
    else:
        chosen = [(await run_at_server(client, wanted)).id for wanted in options.runs]
    code = REQUESTED
    for run_id in chosen:
        code = max(code, await _stop(client, run_id, options))
    return code


async def _stop(client: Client, run_id: str, options: argparse.Namespace) -> int:
    undo = True if options.undo else None
    answer = await client.cancel_run(run_id, options.reason, mode=Mode(options.mode), undo=undo, wait=options.wait)
    if options.undo and answer.receipt is not None and not answer.accepted:  # it had ended before
        return await _undo(client, run_id, options)
    at_rest = answer.run.state in _AT_REST
    if options.json:
        print_line({"run": run_id, "accepted": answer.accepted, "at_rest": at_rest, "receipt": answer.receipt})
        return NOT_AT_REST if options.wait is not None and not at_rest else REQUESTED
    if answer.receipt is not None:
        print(clean(str(answer.receipt)))
        return REQUESTED
    if at_rest:
        print(f"{run_id}: was at rest already.")
        return REQUESTED
    waiting = ", ".join(answer.run.waiting_for)
    word = "stopping" if answer.accepted else "stopping already"
    print(clean(f"{run_id}: {word}, waiting for {waiting}." if waiting else f"{run_id}: {word}."))
    if options.wait is None:
        return REQUESTED
    print(f"quiesce: {run_id} is not at rest after {options.wait:g} s.", file=sys.stderr)
    return NOT_AT_REST


async def _undo(client: Client, run_id: str, options: argparse.Namespace) -> int:
    """Undo an ended run; returns 3 when that takes longer than the wait."""
    wait = 30.0 if options.wait is None else options.wait
    receipt, is_done = await client.undo_run(run_id, wait=wait)
    tell(options, str(receipt), {"run": run_id, "accepted": True, "at_rest": is_done, "receipt": receipt})
    if is_done:
        return REQUESTED
    print(f"quiesce: the undo of {run_id} is still in progress after {wait:g} s.", file=sys.stderr)
    return NOT_AT_REST
