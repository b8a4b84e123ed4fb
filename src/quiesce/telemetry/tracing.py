"""OpenTelemetry: a span for each run, model call and tool, and metrics, with the GenAI semantic conventions.

    from quiesce.telemetry import Telemetry

    agent = Agent("anthropic:claude-...", telemetry=Telemetry())

Needs the extra `otel`, which installs the API only; the program's own SDK decides where they go. Spans are made from
the run's events, so an agent without telemetry pays nothing. Each span ends with its run at the latest, however that
ends: by a kill, with an abandoned tool, or by a cancellation from outside.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from .._version import __version__
from ..conversation.conversation import Conversation
from ..errors import ConfigurationError
from ..events import (
    AnswerEnd,
    AnswerStart,
    Event,
    ModelCallEnded,
    ModelCallStarted,
    ProviderPartDelta,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StopRequested,
    TextDelta,
    ToolCallStart,
    ToolEnded,
    ToolStarted,
)
from ..messages import Outcome
from ..processes.environment import set_trace_variables
from ..run.agent_runs import FollowedRun, following
from ..run.config import RunConfig
from .attributes import (
    as_json_text,
    cause_attributes,
    model_attributes,
    parameter_attributes,
    receipt_attributes,
    usage_attributes,
)
from .fleet_metrics import FleetMetrics
from .metrics import Metrics

_SCOPE: Final = "quiesce"
_TRACE: Final = "telemetry.trace"


class Telemetry:
    """Traces and measures the runs of the agents that have it.

    tracer_provider   where spans go; by default the program's global provider
    meter_provider    where metrics go; by default the program's global provider
    capture_content   whether the arguments and results of tools are recorded too

    Raises `ConfigurationError` when the OpenTelemetry API is not installed.
    """

    def __init__(
        self, *, tracer_provider: Any = None, meter_provider: Any = None, capture_content: bool = False
    ) -> None:
        try:
            self.trace: Final[Any] = importlib.import_module("opentelemetry.trace")
            self.context: Final[Any] = importlib.import_module("opentelemetry.context")
            metrics: Any = importlib.import_module("opentelemetry.metrics")
            tracecontext: Any = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        except ImportError:
            raise ConfigurationError(
                "Telemetry needs the OpenTelemetry API.", todo="pip install 'quiesce[otel]'."
            ) from None
        self.tracer: Final[Any] = self.trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self.metrics: Final = Metrics(meter)
        self.fleet: Final = FleetMetrics(meter)
        self._propagator: Final = tracecontext.TraceContextTextMapPropagator()
        self.capture_content: Final = capture_content

    def variables(self, span: Any) -> dict[str, str]:
        """The environment variables that let a program continue the trace below this span: TRACEPARENT."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=self.trace.set_span_in_context(span))
        return {name.upper(): value for name, value in carrier.items()}

    def follow(self, run: FollowedRun) -> Callable[[Event], None]:
        """Begin the span of a run, under the span that is current here; returns the tap for the run's events."""
        return RunTrace(self, run).on_event


class TaskTrace:
    """Where the trace of a task began: a named value of the conversation, which another process reads."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation: Final = conversation

    def read(self, task: str) -> tuple[int, int] | None:
        """The ids of the trace and of the first run's span; None when the task has none yet."""
        known, _, ids = self._conversation.values.get(_TRACE, b"").decode().partition(" ")
        if known != task:
            return None
        trace_id, span_id = ids.split(" ")
        return int(trace_id, 16), int(span_id, 16)

    def write(self, task: str, context: Any) -> None:
        """Keep where the trace began."""
        if context.is_valid and context.trace_flags.sampled:
            value = f"{task} {context.trace_id:032x} {context.span_id:016x}"
            self._conversation.set_value(_TRACE, value.encode())


class RunTrace:
    """The spans of one run. Only for the run's own loop."""

    def __init__(self, telemetry: Telemetry, run: FollowedRun) -> None:
        self._otel: Final = telemetry
        self._config: Callable[[], RunConfig] | None = lambda: run.config  # a handoff changes it
        conversation = run.conversation
        self._conversation: Final = conversation.session_name or conversation.id
        self._task_trace: Final = None if run.is_child else TaskTrace(conversation)
        self._began: Final = time.perf_counter()
        config = run.config
        about = {"quiesce.run.id": run.run_id, **model_attributes(config.model.name)}
        self._about: Final = f"invoke_agent {config.agent}", about, time.time_ns()
        self._context: Any = telemetry.context.get_current()
        self._run_span: Any = None
        self._call: Any = None
        self._model, self._sent_at = "", 0.0
        self._waiting = False
        self._tools: Final[dict[str, Any]] = {}

    def on_event(self, event: Event) -> None:
        """Handle an event of the run. Most are text, and need no handler."""
        handle = self._HANDLE.get(event.__class__)
        if handle is not None:
            handle(self, event)

    @property
    def _run(self) -> Any:
        """The span of the run. It is made when the run has begun, because its task is not known before."""
        if self._run_span is None:
            name, about, began = self._about
            self._run_span = self._begin(name, "invoke_agent", None, about, context=self._context, start_time=began)
        return self._run_span

    def _begin(self, name: str, operation: str, parent: Any, attributes: dict[str, Any], **options: Any) -> Any:
        trace = self._otel.trace
        kind = trace.SpanKind.CLIENT if operation == "chat" else trace.SpanKind.INTERNAL
        common: dict[str, Any] = {"gen_ai.operation.name": operation}
        if self._config is not None:
            common["gen_ai.agent.name"] = self._config().agent
        common["gen_ai.conversation.id"] = self._conversation
        if parent is not None:
            options["context"] = trace.set_span_in_context(parent)
        return self._otel.tracer.start_span(name, kind=kind, attributes={**common, **attributes}, **options)

    def _make_current(self, span: Any) -> None:
        """Make this span the parent of spans that this task begins from here on.

        Never undone: the context belongs to the task, and its next step makes its own span current.
        """
        self._otel.context.attach(self._otel.trace.set_span_in_context(span))

    # --- The run ------------------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        following.set(self._otel)  # in the run's own task, whose tools may start children
        if self._task_trace is not None:
            self._join_trace(self._task_trace, event.task)
        self._run.set_attribute("quiesce.task.id", event.task)
        self._make_current(self._run)

    def _join_trace(self, task_trace: TaskTrace, task: str) -> None:
        """Put the run into the trace of the task's first run; a run with a parent of its own gets a link to it."""
        trace = self._otel.trace
        first = task_trace.read(task)
        if first is None:
            task_trace.write(task, self._run.get_span_context())
            return
        known = trace.SpanContext(*first, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
        if trace.get_current_span(self._context).get_span_context().is_valid:
            self._run.add_link(known)
        else:
            self._context = trace.set_span_in_context(trace.NonRecordingSpan(known), self._context)

    def _stop_requested(self, event: StopRequested) -> None:
        self._run.add_event("quiesce.stop_requested", cause_attributes(event.cause))

    def _run_ended(self, event: RunEnded) -> None:
        for span in (*self._tools.values(), self._call):
            if span is not None:  # the run is over, and so is everything in it
                span.end()
        self._tools.clear()
        self._call = None
        self._run.set_attributes(receipt_attributes(event.receipt))
        if event.error is not None:
            self._fail(self._run, event.error_type or "_OTHER", event.error)
        self._run.end()
        agent = "" if self._config is None else self._config().agent
        failed = None if event.error is None else event.error_type or "_OTHER"
        self._otel.metrics.run_ended(agent, event.receipt, time.perf_counter() - self._began, failed)
        self._config = None  # the run holds this object, and would be freed only by the garbage collector

    def _fail(self, span: Any, kind: str, what: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._otel.trace.StatusCode.ERROR, what)

    # --- Model calls --------------------------------------------------------------------------------------------

    def _call_started(self, event: ModelCallStarted) -> None:
        attributes: dict[str, Any] = {
            "gen_ai.request.stream": True,
            "quiesce.turn": event.turn,
            "quiesce.attempt": event.attempt,
            **model_attributes(event.model),
            **parameter_attributes({} if self._config is None else self._config().settings or {}),
        }
        if self._call is not None:  # middleware may have several requests under way: this one is followed now
            self._call.end()
        self._call = self._begin(f"chat {attributes['gen_ai.request.model']}", "chat", self._run, attributes)
        self._model, self._sent_at = event.model, time.perf_counter()
        self._waiting = True
        self._make_current(self._call)

    def _answer_started(self, event: AnswerStart) -> None:
        if self._call is not None and event.model is not None:
            self._call.set_attribute("gen_ai.response.model", event.model)

    def _first_chunk(self, _: Event) -> None:
        if self._waiting and self._call is not None:
            self._waiting = False
            seconds = time.perf_counter() - self._sent_at
            self._call.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
            self._otel.metrics.first_chunk(self._model, seconds)

    def _answer_ended(self, event: AnswerEnd) -> None:
        if self._call is not None:
            self._call.set_attribute("gen_ai.response.finish_reasons", (event.reason,))

    def _call_ended(self, event: ModelCallEnded) -> None:
        span, self._call = self._call, None
        entry = event.entry
        seconds = None if span is None else time.perf_counter() - self._sent_at
        self._otel.metrics.call_ended(entry, seconds)
        if span is None:  # middleware had several requests under way, and this one is not followed
            return
        span.set_attributes(usage_attributes(entry.usage, entry.cost))
        span.set_attribute("quiesce.call.ended", entry.ended)
        if entry.request_id is not None:
            span.set_attribute("gen_ai.response.id", entry.request_id)
        if entry.ended == "failed":
            self._fail(span, entry.error or "_OTHER", "The model call failed.")
        span.end()
        self._make_current(self._run)

    # --- Tools --------------------------------------------------------------------------------------------------

    def _tool_started(self, event: ToolStarted) -> None:
        call = event.call
        attributes = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id, "gen_ai.tool.type": "function"}
        if self._otel.capture_content:
            attributes["gen_ai.tool.call.arguments"] = as_json_text(call.arguments)
        span = self._begin(f"execute_tool {call.name}", "execute_tool", self._run, attributes)
        self._tools[call.id] = span
        self._make_current(span)  # this is the tool's own task, so its spans become children
        set_trace_variables(self._otel.variables(span))

    def _tool_ended(self, event: ToolEnded) -> None:
        result = event.result
        span = self._tools.pop(result.call_id, None)
        if span is None:  # it never started, which the receipt says
            return
        span.set_attribute("quiesce.tool.outcome", result.outcome.value)
        if self._otel.capture_content:
            span.set_attribute("gen_ai.tool.call.result", result.text)
        if result.is_error and result.outcome is Outcome.COMPLETED:
            self._fail(span, "tool_error", "The tool failed.")
        span.end()

    _HANDLE: ClassVar[dict[type, Callable[[RunTrace, Any], None]]] = {
        RunStarted: _run_started,
        StopRequested: _stop_requested,
        RunEnded: _run_ended,
        ModelCallStarted: _call_started,
        AnswerStart: _answer_started,
        TextDelta: _first_chunk,
        ReasoningDelta: _first_chunk,
        ToolCallStart: _first_chunk,
        ProviderPartDelta: _first_chunk,
        AnswerEnd: _answer_ended,
        ModelCallEnded: _call_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
    }
