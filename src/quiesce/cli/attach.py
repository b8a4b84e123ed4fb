"""`quiesce attach RUN` and `quiesce logs RUN`: the events of a run, from wherever it runs."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from .json_lines import add_option
from .main import Subparsers
from .remote import add_options, add_store_option, at_server, in_fleet, run_at_server, store_of

if TYPE_CHECKING:
    from ..client import Client
    from ..fleet.client import Fleet
    from .event_printer import EventPrinter


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommands."""
    for name, about, follows in (
        ("attach", "follow a run to its end; Ctrl-C leaves it running", True),
        ("logs", "print the events of a run so far", False),
    ):
        parser = subparsers.add_parser(name, help=about)
        parser.add_argument("id", metavar="RUN", help="the run's id, or the beginning of it")
        add_options(parser)
        add_store_option(parser)
        parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after event number N")
        add_option(parser, "the events, each with its number,")
        if follows:
            parser.set_defaults(run=run, follow=True)
        else:
            parser.add_argument("-f", "--follow", action="store_true", help="follow the run to its end")
            parser.add_argument(
                "--tree",
                action="store_true",
                help="as a tree of model calls, tools and sub-agents, with times, tokens and cost",
            )
            parser.set_defaults(run=run)
        parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Print the events, and with `follow` those that come, also of the runs that go on with this one in a fleet."""
    from .event_printer import EventPrinter

    is_tree = getattr(options, "tree", False)
    if is_tree and (options.json or options.after):
        options.usage_error("--tree is for all events, and for people: leave out --json and --after")
    printer = EventPrinter(as_json=options.json, as_tree=is_tree)
    with printer:
        if store_of(options) is None:
            return at_server(options, lambda client: _at_server(client, options, printer))
        return in_fleet(options, lambda fleet: _in_fleet(fleet, options, printer))


async def _at_server(client: Client, options: argparse.Namespace, printer: EventPrinter) -> int:
    run = await run_at_server(client, options.id)
    if run.last_event <= options.after and not options.follow:
        return 0
    async with aclosing(client.stream_events(run.id, after=options.after)) as events:
        async for each in events:
            printer.show(run.id, each.number, each.event, each.at)
            if each.number >= run.last_event and not options.follow:
                break
    return 0


async def _in_fleet(fleet: Fleet, options: argparse.Namespace, printer: EventPrinter) -> int:
    from .fleet_store import chosen_run

    run_id, after = (await chosen_run(fleet, options.id)).id, options.after
    while run_id and options.follow:
        async for number, event in fleet.events(run_id, after):
            printer.show(run_id, number, event)
        ended = await fleet.rest(run_id)
        run_id, after = "" if ended is None else ended.restarted_as, 0
    if not options.follow:
        await _so_far(fleet, run_id, options.after, printer)
    return 0


async def _so_far(fleet: Fleet, run_id: str, after: int, printer: EventPrinter) -> None:
    """Print the events that are there, in the pieces in which the store gives them."""
    enough = asyncio.Event()
    enough.set()
    seen = -1
    while seen < after:
        seen = after
        async for number, event in fleet.events(run_id, after, until=enough):
            printer.show(run_id, number, event)
            after = number
