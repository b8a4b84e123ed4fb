"""Spans and metrics of a stopped run at an OTLP receiver: protobuf over HTTP, read with `opentelemetry-proto`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.events import ToolStarted
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall, Used

pytest.importorskip("opentelemetry.proto", reason="`make proof` installs it")
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from quiesce.telemetry import Telemetry

pytestmark = pytest.mark.proof
KINDS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """What a collector is sent."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        request = KINDS[path].FromString(body)
        for resource in getattr(request, "resource_spans", ()):
            self.spans |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
        for resource in getattr(request, "resource_metrics", ()):
            self.metrics |= {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}

    @contextmanager
    def listening(self) -> Iterator[Receiver]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.take(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@tool(on_stop="kill", grace=0.1)
def wait() -> str:
    """Wait for ever, in a process."""
    threading.Event().wait()
    return "never"


@pytest.mark.promise("P4", "P7")
async def test_a_stopped_run_at_a_receiver() -> None:
    with Receiver().listening() as receiver:
        tracers = TracerProvider(resource=Resource({"service.name": "proof"}))
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{receiver.url}/v1/metrics"), 3_600_000)
        meters = MeterProvider([reader])
        telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
        model = ScriptedModel([Say("Let me wait. "), Call("wait", {}), Used(40, 12)], [Stall()], name="openai:gpt-5")
        agent = Agent(model, tools=[wait], telemetry=telemetry, name="proof")
        run = agent.start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                run.cancel("enough")
        receipt = await run.stopped()
        tracers.shutdown()
        meters.shutdown()
    assert set(receiver.spans) == {"invoke_agent proof", "chat gpt-5", "execute_tool wait"}
    about = plain(receiver.spans["invoke_agent proof"].attributes)
    assert about["quiesce.stop.reason"] == "enough"
    assert about["quiesce.stop.latency"] == receipt.latency
    assert (
        plain(receiver.spans["execute_tool wait"].attributes)["quiesce.tool.outcome"] == receipt.calls[0].outcome.value
    )
    assert all(span.end_time_unix_nano for span in receiver.spans.values())
    (latency,) = receiver.metrics["quiesce.stop.latency"].histogram.data_points
    assert latency.sum == receipt.latency
    assert {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"} <= set(receiver.metrics)
    assert receiver.metrics["gen_ai.client.token.usage"].unit == "{token}"
