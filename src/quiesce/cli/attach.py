"""`quiesce attach RUN`: read the events of a run of a fleet, from wherever it runs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .main import Subparsers
from .remote import add_store_option
from .sanitize import call_line, clean, result_line


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("attach", help="follow a run of a fleet; Ctrl-C leaves it running")
    parser.add_argument("id", metavar="RUN", help="the run's id, or the beginning of it")
    add_store_option(parser, only=True)
    parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after event number N")
    parser.add_argument("--json", action="store_true", help="one event per line, as JSON, with its number")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the events to the end of the run, and of the runs that go on with it."""
    from ..fleet.client import Fleet
    from .fleet_store import chosen_run, in_fleet

    async def follow(fleet: Fleet) -> int:
        run_id, after = (await chosen_run(fleet, options.id)).id, options.after
        while run_id:
            async for number, event in fleet.events(run_id, after):
                _show(run_id, number, event, as_json=options.json)
            ended = await fleet.rest(run_id)
            run_id, after = "" if ended is None else ended.restarted_as, 0
        return 0

    try:
        return in_fleet(options, follow)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _show(run_id: str, number: int, event: Any, *, as_json: bool) -> None:
    from ..events import RunEnded, TextDelta, ToolEnded, ToolStarted
    from ..sessions.journal.rows import encode

    if as_json:
        print(f'{{"run":"{run_id}","number":{number},"event":{encode(event).decode()}}}', flush=True)
        return
    match event:
        case TextDelta(text):
            print(clean(text), end="", flush=True)
        case ToolStarted(call):
            print(f"\n> {call_line(call.name, call.arguments)}", flush=True)
        case ToolEnded(result):
            print(result_line(result), flush=True)
        case RunEnded(receipt=receipt):
            print(f"\n{clean(str(receipt))}", flush=True)
        case _:
            pass
