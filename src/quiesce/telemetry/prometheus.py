"""A page of metrics for Prometheus at `http://host:port/metrics`, in a thread of its own (extra: `prometheus`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigurationError, MissingExtra


def parse_address(text: str) -> tuple[str, int]:
    """A host and a port from `port` or `host:port`; the host is this machine unless given."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"{text!r} is not an address for the metrics.", todo="Use PORT or HOST:PORT.")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def metrics_page(address: str) -> Generator[int]:
    """Make the program's meter provider one that Prometheus reads, and serve its page; gives the port.

    To be entered before agents with `telemetry=` run, or a worker starts. Raises `MissingExtra`, and
    `ConfigurationError` for an address that cannot be listened on.
    """
    host, port = parse_address(address)
    try:
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import start_http_server
    except ImportError as error:
        raise MissingExtra("The page of metrics", error.name or "prometheus_client", "prometheus") from None
    provider = MeterProvider([PrometheusMetricReader()])
    metrics.set_meter_provider(provider)
    try:
        started: Any = start_http_server(port, host)
    except (OSError, UnicodeError) as error:  # the latter for `a..b`, which cannot be a host
        provider.shutdown()
        raise ConfigurationError(f"The metrics cannot be served at {host}:{port}: {error}.") from None
    server, thread = started
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()
