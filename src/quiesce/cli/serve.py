"""`quiesce serve module:agent`: agents over HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..errors import ConfigurationError
from .load_agent import load_agent
from .main import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("serve", help="serve agents over HTTP, with the web console")
    parser.add_argument("agents", nargs="+", metavar="MODULE:AGENT", help="what to serve; the first is the default")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8765, help="default: %(default)s")
    parser.add_argument(
        "--key-file", type=Path, help="who may use it (see `quiesce key`); QUIESCE_API_KEYS=name=key,... adds to it"
    )
    parser.add_argument("--drain", type=float, default=30.0, metavar="S", help="seconds from SIGTERM to the last run")
    parser.add_argument("--on-disconnect", choices=("cancel", "continue"), default="continue")
    parser.add_argument(
        "--disconnect-grace", type=float, default=10.0, metavar="S", help="seconds that a reader may be away"
    )
    parser.add_argument("--max-runs", type=int, default=100, metavar="N", help="runs at a time, per key")
    parser.add_argument("--max-streams", type=int, default=200, metavar="N", help="open event streams, per key")
    parser.add_argument("--max-body", type=int, default=8 * 1024 * 1024, metavar="BYTES")
    parser.add_argument("--heartbeat", type=float, default=15.0, metavar="S")
    parser.add_argument("--cors-origin", action="append", default=[], metavar="ORIGIN", help="another site that may")
    parser.add_argument("--store", metavar="PATH|URL", help="where sessions and runs outlive the process")
    parser.add_argument("--receipts", type=Path, metavar="FILE", help="write every receipt here, as lines of JSON")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal; 0 when everything was drained."""
    try:
        from ..server import Settings, serve
        from ..server.keys import ENVIRONMENT, gather, keys_from_environment, keys_from_file
    except ImportError as error:
        raise ConfigurationError(
            f"The server needs {error.name}.", todo='Install it with: pip install "quiesce[serve]"'
        ) from error
    keys = gather(
        (
            {} if options.key_file is None else keys_from_file(options.key_file),
            keys_from_environment(os.environ.pop(ENVIRONMENT, "")),  # nobody else needs them
        )
    )
    if options.key_file is not None and keys is None:
        raise ConfigurationError(f"{options.key_file} holds no key.", todo="Make one with `quiesce key`.")
    settings = Settings(
        max_body=options.max_body,
        max_runs_per_key=options.max_runs,
        max_streams_per_key=options.max_streams,
        heartbeat=options.heartbeat,
        on_disconnect=options.on_disconnect,
        disconnect_grace=options.disconnect_grace,
        drain=options.drain,
        cors_origins=tuple(options.cors_origin),
        receipts=options.receipts,
    )
    agents = [load_agent(target) for target in options.agents]
    serve(
        *agents,
        host=options.host,
        port=options.port,
        keys=keys,
        settings=settings,
        store=options.store,
        log_level=options.log_level,
    )
    return 0
