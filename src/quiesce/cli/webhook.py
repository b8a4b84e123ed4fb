"""`quiesce webhook`: HTTP requests that tell other programs when a run of a fleet waits, ends or is lost."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import structs

from .json_lines import add_option, tell, tell_all
from .main import Subparsers
from .remote import add_store_option, in_fleet

if TYPE_CHECKING:
    from ..fleet.client import Fleet
    from ..fleet.webhook_table import DeliveryCounts, Webhook


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("webhook", help="HTTP requests when a run of a fleet waits, ends or is lost")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add = commands.add_parser("add", help="add an address, and print the secret that signs what is sent there")
    add.add_argument("address", metavar="URL", help="the address of the receiver")
    add.add_argument(
        "--event",
        action="append",
        default=[],
        metavar="EVENT",
        help="run.waiting, run.ended or run.lost (repeatable; default: all)",
    )
    add.add_argument("--owner", default="", metavar="KEY", help="only runs of this key")
    add.add_argument("--agent", default="", metavar="NAME", help="only runs of this agent")
    add.add_argument("--private", action="store_true", help="allow a host whose address is not public")
    add.set_defaults(run=run_add)
    show = commands.add_parser("list", help="the addresses, and what became of the deliveries of the last days")
    show.set_defaults(run=run_list)
    remove = commands.add_parser("remove", help="remove an address, and what was to be delivered there")
    remove.add_argument("webhook", metavar="ID", help="the id that `list` prints")
    remove.set_defaults(run=run_remove)
    for each in (add, show, remove):
        add_store_option(each, only=True)
        add_option(each, "the webhooks")


def run_add(options: argparse.Namespace) -> int:
    """Add a webhook."""

    async def add(fleet: Fleet) -> int:
        made = await fleet.webhooks.add(
            options.address, events=options.event, owner=options.owner, agent=options.agent, private=options.private
        )
        tell(options, f"{made.id}  {', '.join(made.events)}\nsecret: {made.secret}", made)
        return 0

    return in_fleet(options, add)


def run_list(options: argparse.Namespace) -> int:
    """Print the webhooks."""

    async def show(fleet: Fleet) -> int:
        tell_all(options, await fleet.webhooks.list(), _line, "No webhooks.", _value)
        return 0

    return in_fleet(options, show)


def run_remove(options: argparse.Namespace) -> int:
    """Remove a webhook; returns 1 when there is none."""

    async def remove(fleet: Fleet) -> int:
        removed = await fleet.webhooks.remove(options.webhook)
        text = "Removed." if removed else "There is no such webhook."
        tell(options, text, {"id": options.webhook, "removed": removed})
        return 0 if removed else 1

    return in_fleet(options, remove)


def _value(listed: tuple[Webhook, DeliveryCounts]) -> dict[str, Any]:
    webhook, counts = listed
    shown = structs.asdict(webhook)
    del shown["secret"]
    return {**shown, **counts._asdict()}


def _line(listed: tuple[Webhook, DeliveryCounts]) -> str:
    webhook, counts = listed
    state = "DISABLED, the receiver is gone" if webhook.disabled is not None else ", ".join(webhook.events)
    only = "".join(f"  {name} {value}" for name, value in (("key", webhook.owner), ("agent", webhook.agent)) if value)
    last = f"  last failure: {counts.last_failure}" if counts.last_failure else ""
    done = f"{counts.delivered} delivered, {counts.waiting} waiting, {counts.failed} given up"
    return f"{webhook.id}  {webhook.url}  {state}{only}  {done}{last}"
