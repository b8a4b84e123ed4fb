"""`quiesce stop RUN`: stop runs of a server, or of a fleet."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import msgspec

from ..cancellation import Mode
from ..errors import ServerProblem
from ..receipt import Receipt
from .main import Subparsers
from .remote import Remote, add_options, add_store_option, connected, store_of
from .sanitize import clean

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
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        default=Mode.NOW.value,
        help="how urgently to stop (default: %(default)s)",
    )
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
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Request the stops; returns 0 when all were requested, with --wait when all runs are at rest."""
    if bool(options.runs) == options.all:
        options.usage_error("name the runs to stop, or use --all")
    if store_of(options) is not None:
        from .fleet_store import in_fleet, stop_runs

        return in_fleet(options, lambda fleet: stop_runs(fleet, options))
    if options.agent is not None:
        options.usage_error("--agent needs --all and --store")
    code = REQUESTED
    with connected(options) as server:
        for run_id in _chosen(server, options):
            code = max(code, _stop(server, run_id, options))
    return code


def _chosen(server: Remote, options: argparse.Namespace) -> list[str]:
    known = server.get("/runs", {"limit": 1000})["runs"]
    if options.all:
        return [each["id"] for each in known if each["state"] not in _AT_REST]
    return [_full_id(wanted, [each["id"] for each in known]) for wanted in options.runs]


def _full_id(wanted: str, known: list[str]) -> str:
    if wanted in known:
        return wanted
    found = [each for each in known if each.startswith(wanted)]
    match found:
        case [only]:
            return only
        case []:
            raise ServerProblem(f"There is no run {wanted!r}.", todo="`quiesce ps --all` lists them.")
        case _:
            raise ServerProblem(f"{wanted!r} is ambiguous: {', '.join(found)}.", todo="Write more of the id.")


def _stop(server: Remote, run_id: str, options: argparse.Namespace) -> int:
    body: dict[str, Any] = {"mode": options.mode, "reason": options.reason}
    if options.undo:
        body["undo"] = True
    query = {} if options.wait is None else {"wait": options.wait}
    answer = server.post(f"/runs/{run_id}/cancel", query, body, timeout=10.0 + (options.wait or 0.0))
    receipt = answer.get("receipt")
    if options.undo and receipt is not None and not answer["accepted"]:  # it had ended before
        return _undo(server, run_id, options)
    if receipt is not None:
        print(clean(str(msgspec.convert(receipt, Receipt))))
        return REQUESTED
    if answer["run"]["state"] in _AT_REST:
        print(f"{run_id}: was at rest already.")
        return REQUESTED
    waiting = ", ".join(answer["run"]["waiting_for"])
    word = "stopping" if answer["accepted"] else "stopping already"
    print(clean(f"{run_id}: {word}, waiting for {waiting}." if waiting else f"{run_id}: {word}."))
    if options.wait is None:
        return REQUESTED
    print(f"quiesce: {run_id} is not at rest after {options.wait:g} s.", file=sys.stderr)
    return NOT_AT_REST


def _undo(server: Remote, run_id: str, options: argparse.Namespace) -> int:
    """Undo an ended run; returns 3 when that takes longer than the wait."""
    wait = 30.0 if options.wait is None else options.wait
    answer = server.post(f"/runs/{run_id}/undo", {"wait": wait}, {}, timeout=10.0 + wait)
    print(clean(str(msgspec.convert(answer["receipt"], Receipt))))
    if answer["is_done"]:
        return REQUESTED
    print(f"quiesce: the undo of {run_id} is still in progress after {wait:g} s.", file=sys.stderr)
    return NOT_AT_REST
