"""`quiesce worker module:agent --store postgresql://...`: takes runs from the queue of a fleet."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import Final

from .agent_options import load_agent, load_function
from .json_lines import add_option, print_line
from .main import Subparsers
from .process_options import add_number, add_process_options, metrics_of

_log: Final = logging.getLogger("quiesce.fleet")


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("worker", help="take runs from the queue in Postgres; see `quiesce serve --fleet`")
    parser.add_argument("agents", nargs="+", metavar="MODULE:AGENT", help="the agents whose runs it takes")
    parser.add_argument("--store", metavar="URL", required=True, help="the Postgres of the fleet: postgresql://...")
    add_number(parser, "--capacity", 20, "N", "runs at once, at most")
    add_number(parser, "--lease", 15.0, "S", "seconds without a heartbeat after which other workers take its runs over")
    add_number(parser, "--drain", 30.0, "S", "seconds after SIGTERM until its runs end or move to another worker")
    parser.add_argument(
        "--accept-changed-agents",
        action="store_true",
        help="go on with runs that an earlier version of an agent has begun, when no worker has that version any more",
    )
    parser.add_argument(
        "--deps", metavar="MODULE:FUNCTION", help="function that makes the deps of each run (owner, agent, session)"
    )
    add_process_options(parser)
    add_option(parser, "its id and agents, when it takes runs,")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; returns 0 when the drain is over. A second signal shortens the drain."""
    from ..fleet.worker import Worker, WorkerSettings
    from ..processes.environment import hide_environment
    from ..telemetry import Telemetry

    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s: %(name)s: %(message)s")
    agents = [load_agent(target) for target in options.agents]
    settings = WorkerSettings(options.capacity, options.lease, options.drain, options.accept_changed_agents)
    deps = None if options.deps is None else load_function(options.deps)

    async def main() -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()

        def on_signal() -> None:
            (hurry if stop.is_set() else stop).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
        telemetry = None if options.metrics is None else Telemetry()
        worker = Worker(*agents, store=options.store, settings=settings, deps=deps, telemetry=telemetry)
        _log.info("worker %s takes runs of %s", worker.id.hex[:12], ", ".join(agent.name for agent in agents))
        if options.json:
            print_line({"worker": worker.id.hex, "agents": [agent.name for agent in agents]})
        await worker.run(stop, hurry)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:  # a tool that cannot be stopped does not keep the process alive: another worker takes its run over
            _log.error("the process ends although %d tasks did not stop", len(left))
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)

    hide_environment()  # from processes that tools start
    with metrics_of(options):
        asyncio.run(main())
    return 0
