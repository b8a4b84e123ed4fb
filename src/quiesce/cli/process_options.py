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


def add_number(
    parser: argparse.ArgumentParser, flag: str, default: float, unit: str, text: str, *, dest: str | None = None
) -> None:
    """An option that takes a number, whole or not like its default, which the help text shows."""
    shown = f"{text} (default: {'%(default)g' if isinstance(default, float) else '%(default)s'})"
    parser.add_argument(flag, dest=dest, type=type(default), default=default, metavar=unit, help=shown)


def metrics_of(options: argparse.Namespace) -> AbstractContextManager[object]:
    """What serves the metrics while the program runs. Raises `ConfigurationError`."""
    if options.metrics is None:
        return nullcontext()
    from ..telemetry.prometheus import metrics_page

    return metrics_page(options.metrics)
