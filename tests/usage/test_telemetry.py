"""Spans for runs, model calls and tools: with the GenAI conventions, and ended on every path."""

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent, Session, handoff, tool
from quiesce.errors import RateLimited
from quiesce.events import TextDelta, ToolStarted
from quiesce.models.scripted import Call, Fail, Say, ScriptedModel, Stall, Used
from quiesce.retry import Retry

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from quiesce.telemetry import Telemetry

pytestmark = pytest.mark.promise("P7")


class Recorder:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.began = 0
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(tracer_provider=self.provider, capture_content=True)
        begin = self.telemetry.tracer.start_span

        def counted(*arguments, **options):
            self.began += 1
            return begin(*arguments, **options)

        self.telemetry.tracer.start_span = counted

    def spans(self) -> dict[str, list]:
        found: dict[str, list] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        assert sum(map(len, found.values())) >= self.began, "a span was not ended"
        return found


@tool
async def look(where: str) -> str:
    """Look."""
    with trace.get_tracer("inside").start_as_current_span("inside the tool"):
        pass
    return "nothing there"


def test_a_run_that_finishes() -> None:
    recorder = Recorder()
    model = ScriptedModel(
        [Say("Let me see. "), Call("look", {"where": "here"}), Used(40, 12)],
        [Say("Nothing."), Used(60, 3, cache_read=40)],
        name="openai:gpt-4o",
    )

    async def main() -> str:
        agent = Agent(model, tools=[look], name="seer", telemetry=recorder.telemetry)
        with recorder.provider.get_tracer("web").start_as_current_span("request"):
            return (await agent.invoke_async("look around")).run_id

    run_id = asyncio.run(main())
    spans = recorder.spans()
    (run,), calls, (tool_span,) = spans["invoke_agent seer"], spans["chat gpt-4o"], spans["execute_tool look"]
    (request,) = spans["request"]
    assert run.parent.span_id == request.context.span_id
    assert all(span.parent.span_id == run.context.span_id for span in (*calls, tool_span))
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.agent.name"] == "seer"
    assert run.attributes["quiesce.run.id"] == run.attributes["quiesce.task.id"] == run_id
    assert run.attributes["gen_ai.usage.input_tokens"] == 100
    assert run.attributes["quiesce.stop_reason"] == "end_turn"
    assert "quiesce.stop.source" not in run.attributes
    first, second = calls
    assert first.kind is SpanKind.CLIENT
    assert first.attributes["gen_ai.provider.name"] == "openai"
    assert first.attributes["gen_ai.request.model"] == "gpt-4o"
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert first.attributes["gen_ai.usage.output_tokens"] == 12
    assert first.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert second.attributes["gen_ai.usage.cache_read.input_tokens"] == 40
    assert tool_span.attributes["gen_ai.tool.name"] == "look"
    assert tool_span.attributes["gen_ai.tool.call.arguments"] == '{"where":"here"}'
    assert tool_span.attributes["gen_ai.tool.call.result"] == "nothing there"
    assert tool_span.attributes["quiesce.tool.outcome"] == "completed"
    assert run.status.status_code is StatusCode.UNSET


def test_a_tools_own_spans_hang_under_it() -> None:
    recorder = Recorder()
    seen = []

    @tool
    async def where() -> str:
        """Where."""
        seen.append(trace.get_current_span().get_span_context().span_id)
        return "here"

    model = ScriptedModel([Call("where"), Used(1, 1)], "Done.")
    asyncio.run(Agent(model, tools=[where], telemetry=recorder.telemetry).invoke_async("go"))
    assert seen == [recorder.spans()["execute_tool where"][0].context.span_id]


@pytest.mark.case("strands#4013")
@pytest.mark.parametrize("mode", ["now", "kill", "after_tools"])
def test_a_run_that_is_stopped_while_answering(mode: str) -> None:
    recorder = Recorder()

    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Some words. "), Stall()], name="openai:gpt-4o"), telemetry=recorder.telemetry)
        run = agent.start("go")
        async for event in run:
            if isinstance(event, TextDelta):
                run.cancel("enough", mode=mode)

    asyncio.run(main())
    spans = recorder.spans()
    (run,), (call,) = spans["invoke_agent agent"], spans["chat gpt-4o"]
    assert run.attributes["quiesce.stop_reason"] == "cancelled"
    assert run.attributes["quiesce.stop.source"] == "user"
    assert run.attributes["quiesce.stop.reason"] == "enough"
    assert run.attributes["quiesce.stop.mode"] == mode
    assert run.attributes["quiesce.stop.phase"] == "streaming"
    assert run.attributes["quiesce.stop.latency"] > 0
    assert run.status.status_code is StatusCode.UNSET  # a stop that was wanted is no error
    assert call.attributes["quiesce.call.ended"] == "hung_up"
    assert call.attributes["gen_ai.usage.output_tokens"] > 0
    assert call.attributes["quiesce.usage.output.source"] in ("tokenized", "heuristic")
    assert [event.name for event in run.events] == ["quiesce.stop_requested"]


@pytest.mark.promise("P4", "P7")
def test_a_tool_that_is_abandoned() -> None:
    recorder = Recorder()
    release = asyncio.Event()

    @tool(on_stop="abandon", grace=0)
    async def forever() -> str:
        """Wait."""
        await release.wait()
        return "late"

    async def main() -> None:
        agent = Agent(ScriptedModel([Call("forever")]), tools=[forever], telemetry=recorder.telemetry)
        run = agent.start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                run.cancel()
        await run
        release.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    (span,) = recorder.spans()["execute_tool forever"]
    assert span.attributes["quiesce.tool.outcome"] == "abandoned"
    (run,) = recorder.spans()["invoke_agent agent"]
    assert run.attributes["quiesce.receipt.tool_calls"] == ("forever: abandoned",)
    assert len(run.attributes["quiesce.receipt.still_running"]) == 1


def test_a_run_that_is_cancelled_from_outside() -> None:
    recorder = Recorder()

    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Words"), Stall()]), telemetry=recorder.telemetry)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await agent.invoke_async("go")

    asyncio.run(main())
    (run,) = recorder.spans()["invoke_agent agent"]
    assert run.attributes["quiesce.stop.source"] == "caller"


@pytest.mark.leaves("tasks")
def test_a_loop_that_ends_around_a_run() -> None:
    recorder = Recorder()

    async def main() -> None:
        agent = Agent(ScriptedModel([Say("Words"), Stall()]), telemetry=recorder.telemetry)
        async for event in agent.start("go"):
            if isinstance(event, TextDelta):
                return

    asyncio.run(main())
    assert set(recorder.spans()) == {"invoke_agent agent", "chat scripted"}


def test_a_run_that_never_began() -> None:
    recorder = Recorder()

    async def main() -> None:
        agent = Agent(ScriptedModel("never"), telemetry=recorder.telemetry)
        agent.cancel("before")
        await agent.invoke_async("go")

    asyncio.run(main())
    assert set(recorder.spans()) == {"invoke_agent agent"}


def test_failures_are_errors() -> None:
    recorder = Recorder()
    error = RateLimited("Too many requests.", request_id="r1")
    model = ScriptedModel([Fail(error)], [Fail(ValueError("boom"))], name="openai:gpt-4o")

    async def main() -> None:
        agent = Agent(model, retry=Retry(attempts=2, first=0.0), telemetry=recorder.telemetry)
        with pytest.raises(Exception, match="boom"):
            await agent.invoke_async("go")

    asyncio.run(main())
    first, second = recorder.spans()["chat gpt-4o"]
    assert first.attributes["error.type"] == "RateLimited"
    assert first.attributes["gen_ai.response.id"] == "openai:gpt-4o-1"
    assert second.status.status_code is StatusCode.ERROR
    (run,) = recorder.spans()["invoke_agent agent"]
    assert run.attributes["error.type"] == "ModelProtocolError"
    assert run.status.status_code is StatusCode.ERROR


def test_the_sync_way() -> None:
    recorder = Recorder()
    with recorder.provider.get_tracer("cli").start_as_current_span("command"):
        Agent(ScriptedModel("hello"), telemetry=recorder.telemetry)("hi")
    spans = recorder.spans()
    assert spans["invoke_agent agent"][0].parent.span_id == spans["command"][0].context.span_id


def test_the_model_may_have_a_colon_in_its_name_and_the_request_its_parameters(tmp_path: Path) -> None:
    recorder = Recorder()
    model = ScriptedModel("Hello.", name="ollama:qwen2.5:1.5b")
    settings = {"temperature": 0.5, "max_tokens": 100, "stop": ["END"], "logit_bias": {"1": 2}}
    session = Session("s1", tmp_path / "sessions.db")
    asyncio.run(Agent(model, settings=settings, session=session, telemetry=recorder.telemetry).invoke_async("hi"))
    spans = recorder.spans()
    (call,), (run,) = spans["chat qwen2.5:1.5b"], spans["invoke_agent agent"]
    for span in (call, run):
        assert span.attributes["gen_ai.request.model"] == "qwen2.5:1.5b"
        assert span.attributes["gen_ai.provider.name"] == "ollama"
        assert span.attributes["gen_ai.conversation.id"] == "s1"
    assert call.attributes["gen_ai.request.temperature"] == 0.5
    assert call.attributes["gen_ai.request.max_tokens"] == 100
    assert call.attributes["gen_ai.request.stop_sequences"] == ("END",)
    assert "gen_ai.request.logit_bias" not in call.attributes


def test_spans_after_a_handoff_are_those_of_the_agent_that_continues() -> None:
    recorder = Recorder()
    second = Agent(ScriptedModel("Hello.", name="anthropic:claude-x"), name="second", settings={"temperature": 1})
    first = Agent(
        ScriptedModel([Call("hand_over_to_second", {})], name="openai:gpt-4o"),
        name="first",
        tools=[handoff(second)],
        telemetry=recorder.telemetry,
    )
    asyncio.run(first.invoke_async("hi"))
    spans = recorder.spans()
    (before,), (after,) = spans["chat gpt-4o"], spans["chat claude-x"]
    assert (before.attributes["gen_ai.provider.name"], before.attributes["gen_ai.agent.name"]) == ("openai", "first")
    assert (after.attributes["gen_ai.provider.name"], after.attributes["gen_ai.agent.name"]) == ("anthropic", "second")
    assert "gen_ai.request.temperature" not in before.attributes
    assert after.attributes["gen_ai.request.temperature"] == 1


def test_a_child_without_telemetry_is_traced_under_its_parent() -> None:
    recorder = Recorder()
    child = Agent(ScriptedModel("Nothing.", "Alone.", name="openai:gpt-4o"), name="child")
    model = ScriptedModel([Call("child", {"prompt": "look"})], "Done.", name="openai:gpt-5")
    asyncio.run(Agent(model, tools=[child.as_tool()], telemetry=recorder.telemetry).invoke_async("hi"))
    asyncio.run(child.invoke_async("alone"))
    spans = recorder.spans()
    (run,), (call,) = spans["invoke_agent child"], spans["execute_tool child"]
    assert run.parent.span_id == call.context.span_id
    assert spans["chat gpt-4o"][0].parent.span_id == run.context.span_id


def test_the_runs_of_a_task_are_one_trace_over_a_restart(tmp_path) -> None:
    """Under a span of the caller's own, such as that of a web request, a run has a link to the first one instead."""
    recorder = Recorder()

    @tool(requires_approval=True)
    async def order(what: str) -> str:
        """Order."""
        return what

    def agent() -> Agent:  # as a new process makes it
        model = ScriptedModel(*answers, then="Done.")
        answers.pop(0)
        session = Session("s", tmp_path / "store.db")
        return Agent(model, tools=[order], name="buyer", telemetry=recorder.telemetry, session=session)

    async def main() -> None:
        await agent().invoke_async("go")
        await agent().answer_async({"a:approval": True})
        with recorder.provider.get_tracer("web").start_as_current_span("request"):
            await agent().answer_async({"b:approval": True})
        await agent().invoke_async("something else")

    answers = [[Call("order", {"what": "tea"}, "a")], [Call("order", {"what": "milk"}, "b")], "Done.", "Yes.", ""]
    asyncio.run(main())
    first, second, third, other = recorder.spans()["invoke_agent buyer"]
    assert second.context.trace_id == first.context.trace_id
    assert second.parent.span_id == first.context.span_id
    assert third.parent.span_id == recorder.spans()["request"][0].context.span_id
    assert [link.context.span_id for link in third.links] == [first.context.span_id]
    assert other.parent is None
    assert not other.links
    assert len({first.context.trace_id, third.context.trace_id, other.context.trace_id}) == 3
    assert [span.attributes["quiesce.task.id"] for span in (first, second, third)] == [
        first.attributes["quiesce.run.id"]
    ] * 3
