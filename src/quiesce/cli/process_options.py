"""Options of the commands that run for long: `serve` and `worker`."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """The options `--metrics` and `--log-level`."""
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus at http://HOST:PORT/metrics (default host: 127.0.0.1)",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="what is logged on standard error (default: %(default)s)",
    )


def metrics_of(options: argparse.Namespace) -> AbstractContextManager[object]:
    """What serves the metrics while the program runs. Raises `ConfigurationError`."""
    if options.metrics is None:
        return nullcontext()
    from ..telemetry.prometheus import metrics_page

    return metrics_page(options.metrics)
