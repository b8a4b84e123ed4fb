"""`quiesce workers`: the workers of a fleet."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from .json_lines import add_option, print_line
from .main import Subparsers
from .remote import add_store_option
from .sanitize import clean

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
    from .fleet_store import in_fleet
    from .freeze import show_active

    async def show(fleet: Fleet) -> int:
        found = await fleet.workers()
        for worker in found:
            if options.json:
                print_line(worker)
            else:
                print(clean(_line(worker)))
        if not options.json:
            if not found:
                print("No workers.")
            await show_active(fleet)
        return 0

    return in_fleet(options, show)


def _line(worker: WorkerInfo) -> str:
    state = "LOST" if worker.is_lost else worker.status
    up = time.strftime("%Y-%m-%d %H:%M", time.localtime(worker.started))
    agents = ", ".join(worker.agents)
    return (
        f"{worker.id[:12]}  {state:<8}  {worker.running}/{worker.capacity} runs  since {up}"
        f"  heartbeat {worker.age:.0f} s ago  process {worker.pid} on {worker.host}  {agents}"
    )
