"""`quiesce serve module:agent`: agents over HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from ..agent import Agent
from ..errors import ConfigurationError
from .agent_options import load_agent, load_function
from .json_lines import add_option, print_line
from .main import Subparsers
from .process_options import add_number, add_process_options, metrics_of

# The option, the setting that it gives a value, the default, the unit, and the help text.
_LIMITS: Final = (
    ("--drain", "drain", 30.0, "S", "seconds after SIGTERM in which all runs must end"),
    ("--disconnect-grace", "disconnect_grace", 10.0, "S", "seconds without a reader before a run is stopped"),
    ("--max-runs", "max_runs_per_key", 100, "N", "active runs per key, at most"),
    ("--max-streams", "max_streams_per_key", 200, "N", "open event streams per key, at most"),
    ("--max-body", "max_body", 8 * 1024 * 1024, "BYTES", "largest request body"),
    ("--heartbeat", "heartbeat", 15.0, "S", "seconds between heartbeats on a silent event stream"),
)


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("serve", help="serve agents over HTTP, with the web console")
    parser.add_argument(
        "agents", nargs="*", metavar="MODULE:AGENT", help="the agents to serve; the first is the default"
    )
    parser.add_argument(
        "--model", metavar="PROVIDER:MODEL", help="serve an agent without tools, with this model; needs no file"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8765, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--key-file",
        type=Path,
        help="file with the API keys (see `quiesce key`); QUIESCE_API_KEYS=name=key,... adds more",
    )
    parser.add_argument(
        "--operator",
        action="append",
        default=[],
        metavar="NAME",
        help="the key of this name may read the usage of all keys (repeatable)",
    )
    parser.add_argument(
        "--deps",
        metavar="MODULE:FUNCTION",
        help="function that makes the deps of each run from its RunRequest (owner, agent, session, headers)",
    )
    _add_limits(parser)
    parser.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="allow requests from this origin (repeatable)",
    )
    parser.add_argument(
        "--store", metavar="PATH|URL", help="save sessions and runs here, so that they survive a restart"
    )
    parser.add_argument(
        "--fleet",
        action="store_true",
        help="queue runs in the store, a Postgres, for `quiesce worker`, and share them with other replicas",
    )
    parser.add_argument(
        "--receipts", type=Path, metavar="FILE", help="append each receipt to this file, one line of JSON each"
    )
    add_process_options(parser)
    add_option(parser, "the addresses of the server, when it listens,")
    parser.set_defaults(run=run, usage_error=parser.error)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """The options for time limits and quotas."""
    for flag, setting, default, unit, text in _LIMITS:
        add_number(parser, flag, default, unit, text, dest=setting)
    parser.add_argument(
        "--on-disconnect",
        choices=("cancel", "continue"),
        default="continue",
        help="what happens to a run when no client reads its events (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; returns 0 when the drain is over."""
    if not options.agents and options.model is None:
        options.usage_error("name the agents to serve, or a --model")
    try:
        from ..server import Settings, serve
        from ..server.keys import ENVIRONMENT, keys_from_environment, keys_from_file, merge_keys
    except ImportError as error:
        raise ConfigurationError(
            f"The server needs {error.name}.", todo='Install it with: pip install "quiesce[serve]"'
        ) from error
    in_file = {} if options.key_file is None else keys_from_file(options.key_file)
    in_environment = keys_from_environment(os.environ.pop(ENVIRONMENT, ""))  # removed, so that tools cannot read them
    keys = merge_keys((in_file, in_environment))
    if options.key_file is not None and keys is None:
        raise ConfigurationError(f"{options.key_file} contains no API key.", todo="Make one with `quiesce key`.")
    settings = Settings(
        **{setting: getattr(options, setting) for _, setting, *_ in _LIMITS},
        on_disconnect=options.on_disconnect,
        cors_origins=tuple(options.cors_origin),
        receipts=options.receipts,
        fleet=options.fleet,
        operators=tuple(options.operator),
    )
    agents = [load_agent(target) for target in options.agents]
    if options.model is not None:
        agents.append(Agent(options.model))
    with metrics_of(options):
        serve(
            *agents,
            host=options.host,
            port=options.port,
            keys=keys,
            settings=settings,
            store=options.store,
            deps=None if options.deps is None else load_function(options.deps),
            log_level=options.log_level,
            on_ready=lambda url: _say_ready(options, url),
        )
    return 0


def _say_ready(options: argparse.Namespace, url: str) -> None:
    """Print where the server is, once it listens."""
    if options.json:
        print_line({"url": url, "console": f"{url}/", "docs": f"{url}/docs", "pid": os.getpid()})
    else:
        print(f"Console: {url}/\nDocs:    {url}/docs", flush=True)
