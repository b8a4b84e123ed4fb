"""`quiesce ps`: the runs of a server, or of a fleet."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .json_lines import add_option, print_line
from .main import Subparsers
from .remote import active_runs, add_options, add_store_option, at_server, in_fleet, store_of
from .sanitize import clean, one_line

if TYPE_CHECKING:
    from ..client import Client
    from ..server.schemas import RunView

_STATES: Final = ("queued", "running", "stopping", "ended", "crashed")
_HEADINGS: Final = ("RUN", "AGENT", "STATE", "AGE", "TOKENS", "PROMPT")


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("ps", help="list the runs of a server, or of a fleet")
    add_options(parser)
    add_store_option(parser)
    parser.add_argument("-a", "--all", action="store_true", help="also list runs that have ended")
    parser.add_argument("--state", choices=_STATES, help="only runs in this state")
    parser.add_argument("--session", help="only runs of this session")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="list at most N runs (default: %(default)s)"
    )
    add_option(parser, "the runs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the runs, the newest first."""
    runs = _of_server(options) if store_of(options) is None else _of_fleet(options)
    if options.json:
        for each in runs:
            print_line(each)
    elif runs:
        print("\n".join(_table(runs)))
    else:
        print(
            "No runs."
            if options.all or options.state
            else "Nothing is running. (--all also lists runs that have ended.)"
        )
    return 0


def _of_server(options: argparse.Namespace) -> list[dict[str, Any]]:
    from msgspec import to_builtins

    async def listed(client: Client) -> Sequence[RunView]:
        if options.all or options.state is not None:
            return await client.list_runs(state=options.state, session=options.session, limit=options.limit)
        return (await active_runs(client, session=options.session))[: options.limit]

    return to_builtins(at_server(options, listed))


def _of_fleet(options: argparse.Namespace) -> list[dict[str, Any]]:
    from .fleet_store import listed_runs

    return in_fleet(options, lambda fleet: listed_runs(fleet, options))


def _table(runs: list[dict[str, Any]]) -> list[str]:
    rows = [_HEADINGS, *(_row(each) for each in runs)]
    wide = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    room = max(20, shutil.get_terminal_size().columns - sum(wide) - 2 * len(wide))
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, wide, strict=False)), one_line(row[-1], room)])
        for row in rows
    ]


def _row(view: dict[str, Any]) -> tuple[str, ...]:
    return (
        clean(view["id"]),
        one_line(view["agent"], 20),
        one_line(_state(view), 40),
        _age((view["ended_at"] or time.time()) - view["created_at"]),
        f"{_figure(view['usage']['input'])} in, {_figure(view['usage']['output'])} out",
        view["prompt"],
    )


def _state(view: dict[str, Any]) -> str:
    if view.get("restarted_as"):
        return f"{view['stop_reason']}, goes on as {view['restarted_as']}"
    if view["state"] == "ended" and view["stop_reason"]:
        return view["stop_reason"]
    if view["state"] == "stopping" and view["waiting_for"]:
        return f"stopping: waiting for {', '.join(view['waiting_for'])}"
    return view["state"] if view["state"] != "running" else view["phase"]


def _figure(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return f">={figure['low']}" if figure["low"] else "?"
    return f"{figure['value']}" if figure["source"] == "reported" else f"~{figure['value']}"


def _age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
