"""Metrics with the GenAI conventions, and the trace context in the processes that tools start."""

from __future__ import annotations

import os
import sys

import pytest

from quiesce import Agent, Conversation, ToolContext, tool
from quiesce.errors import RateLimited
from quiesce.models.scripted import Call, Fail, Say, ScriptedModel, Stall, Used
from quiesce.retry import Retry

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from quiesce.telemetry import Telemetry

from .test_telemetry import Recorder


def measured(reader: InMemoryMetricReader) -> dict[str, list[HistogramDataPoint]]:
    data = reader.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


@pytest.mark.promise("P6")
async def test_each_request_is_measured_and_an_estimate_says_that_it_is_one() -> None:
    reader = InMemoryMetricReader()
    telemetry = Telemetry(meter_provider=MeterProvider([reader]))
    model = ScriptedModel(
        [Fail(RateLimited("Slow down."))],
        [Say("Half of it. "), Used(40, 12)],
        [Say("And"), Stall()],
        name="openai:gpt-5",
    )
    agent = Agent(model, telemetry=telemetry, retry=Retry(first=0.0))
    await agent.invoke_async("go")
    run = agent.start("go on")
    async for text in run.text_stream():
        assert text == "And"
        run.cancel("enough", mode="kill")
    await run
    found = measured(reader)
    tokens = {
        (point.attributes["gen_ai.token.type"], point.attributes["quiesce.usage.source"] == "reported"): point.sum
        for point in found["gen_ai.client.token.usage"]
        if point.sum
    }
    assert tokens[("input", True)] == 40
    assert tokens[("output", True)] == 12
    assert ("output", False) in tokens, "what the stop cut is an estimate, and says so"
    chats = [p for p in found["gen_ai.client.operation.duration"] if p.attributes["gen_ai.operation.name"] == "chat"]
    assert all(point.attributes["gen_ai.request.model"] == "gpt-5" for point in chats)
    assert all(point.attributes["gen_ai.provider.name"] == "openai" for point in chats)
    assert sorted(
        (point.attributes.get("error.type"), point.count) for point in chats if "error.type" in point.attributes
    ) == [("RateLimited", 1)]
    assert sum(point.count for point in chats) == 3
    assert sum(point.count for point in found["gen_ai.client.operation.time_to_first_chunk"]) == 2


@pytest.mark.promise("P1")
async def test_how_long_a_stop_took_is_measured_by_mode_and_source() -> None:
    reader = InMemoryMetricReader()
    agent = Agent(ScriptedModel([Say("And"), Stall()]), telemetry=Telemetry(meter_provider=MeterProvider([reader])))
    run = agent.start("go")
    async for _ in run.text_stream():
        run.cancel("enough", source="disconnect")
    receipt = await run.stopped()
    (stop,) = measured(reader)["quiesce.stop.latency"]
    assert stop.sum == receipt.latency
    assert stop.attributes["quiesce.stop.mode"] == "now"
    assert stop.attributes["quiesce.stop.source"] == "disconnect"


def span_here() -> str:
    context = trace.get_current_span().get_span_context()
    return f"{os.environ.get('TRACEPARENT', '')} {context.trace_id:032x} {context.span_id:016x}"


@tool(on_stop="kill")
def in_a_worker() -> str:
    """Say which span is current."""
    return span_here()


@tool(on_stop="kill", inherit_env=False)
def in_a_small_environment() -> str:
    """Say which span is current."""
    return span_here()


@tool
async def with_a_program(ctx: ToolContext) -> str:
    """Say what a program finds."""
    done = await ctx.run_process([sys.executable, "-c", "import os; print(os.environ.get('TRACEPARENT', ''))"])
    return done.stdout.strip()


TOOLS = [in_a_worker, in_a_small_environment, with_a_program]


@pytest.mark.promise("P4")
async def test_processes_of_tools_go_on_with_the_trace() -> None:
    recorder = Recorder()
    model = ScriptedModel([Call(each.name, {}, id=f"call_{number}") for number, each in enumerate(TOOLS)], then="done")
    agent = Agent(model, tools=TOOLS, telemetry=recorder.telemetry)
    result = await agent.invoke_async("go")
    for each, answer in zip(TOOLS, result.messages[2].results, strict=True):
        (span,) = recorder.spans()[f"execute_tool {each.name}"]
        trace_id, span_id = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
        parent, *current = answer.text.split()
        assert parent.startswith(f"00-{trace_id}-{span_id}-")
        assert current in ([], [trace_id, span_id])


@pytest.mark.promise("P8")
async def test_a_process_of_a_run_without_telemetry_has_no_trace() -> None:
    recorder = Recorder()
    script = [Call("in_a_worker", {})]
    await Agent(ScriptedModel(script, "done"), tools=TOOLS, telemetry=recorder.telemetry).invoke_async("go")
    result = await Agent(ScriptedModel(script, "done"), tools=TOOLS).invoke_async("go")
    assert result.messages[2].results[0].text.split() == ["0" * 32, "0" * 16]


@pytest.mark.promise("P7")
async def test_spans_have_the_id_of_a_conversation_that_is_in_memory() -> None:
    recorder, conversation = Recorder(), Conversation()
    agent = Agent(ScriptedModel("One.", "Two."), telemetry=recorder.telemetry)
    for _ in range(2):
        await agent.invoke_async("go", conversation=conversation)
    spans = [span for each in recorder.spans().values() for span in each]
    assert {span.attributes["gen_ai.conversation.id"] for span in spans} == {conversation.id}
