"""`quiesce workers`: the workers of a fleet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .freeze import show_active
from .json_lines import add_option, tell_all
from .main import Subparsers
from .remote import add_store_option, in_fleet
from .sanitize import date_text

if TYPE_CHECKING:
    from ..fleet.client import Fleet
    from ..fleet.records import WorkerInfo


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("workers", help="list the workers of a fleet")
    add_store_option(parser, only=True)
    add_option(parser, "the workers")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the workers."""

    async def show(fleet: Fleet) -> int:
        tell_all(options, await fleet.workers(), _line, "No workers.")
        if not options.json:
            await show_active(fleet)
        return 0

    return in_fleet(options, show)


def _line(worker: WorkerInfo) -> str:
    state = "LOST" if worker.is_lost else worker.status
    return (
        f"{worker.id[:12]}  {state:<8}  {worker.running}/{worker.capacity} runs  since {date_text(worker.started)}"
        f"  heartbeat {worker.age:.0f} s ago  process {worker.pid} on {worker.host}  {', '.join(worker.agents)}"
    )
