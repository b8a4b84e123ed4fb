"""OpenTelemetry: a span for each run, model call and tool, with the GenAI semantic conventions.

    from quiesce.telemetry import Telemetry

    agent = Agent("anthropic:claude-...", telemetry=Telemetry())

Needs the extra `otel`, which installs the API only; the program's own SDK decides where spans go. Spans are made from
the run's events, so an agent without telemetry pays nothing. Each span ends with its run at the latest, however that
ends: by a kill, with an abandoned tool, or by a cancellation from outside.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

import msgspec

from ._version import __version__
from .conversation.conversation import Conversation
from .errors import ConfigurationError
from .events import (
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
from .messages import Outcome
from .receipt import Receipt
from .run.agent_runs import following
from .run.config import RunConfig
from .run.state import RunState
from .usage.ledger import TokenUsage
from .usage.prices import Cost

_SCOPE: Final = "quiesce"
_TRACE: Final = "telemetry.trace"
# The names of providers in the conventions, where those of Quiesce differ.
_PROVIDERS: Final = {
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_NUMBERS: Final = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty")
_FIELDS: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}


class Telemetry:
    """Traces the runs of the agents that have it.

    tracer_provider   where spans go; by default the program's global provider
    capture_content   whether the arguments and results of tools are recorded too

    Raises `ConfigurationError` when the OpenTelemetry API is not installed.
    """

    def __init__(self, *, tracer_provider: Any = None, capture_content: bool = False) -> None:
        try:
            self.trace: Final[Any] = importlib.import_module("opentelemetry.trace")
            self.context: Final[Any] = importlib.import_module("opentelemetry.context")
        except ImportError:
            raise ConfigurationError(
                "Telemetry needs the OpenTelemetry API.", todo="pip install 'quiesce[otel]'."
            ) from None
        self.tracer: Final[Any] = self.trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self.capture_content: Final = capture_content

    def follow(self, state: RunState) -> Callable[[Event], None]:
        """Begin the span of a run, under the span that is current here; returns the tap for the run's events."""
        return RunTrace(self, state).on_event


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

    def __init__(self, telemetry: Telemetry, state: RunState) -> None:
        self._otel: Final = telemetry
        self._config: Callable[[], RunConfig] | None = lambda: state.config  # a handoff changes it
        self._session: Final = state.claim.conversation.session_name
        self._task_trace: Final = None if state.family.parent is not None else TaskTrace(state.claim.conversation)
        config = state.config
        about = {"quiesce.run.id": state.run_id, **_model(config.model.name)}
        self._about: Final = f"invoke_agent {config.agent}", about, time.time_ns()
        self._context: Any = telemetry.context.get_current()
        self._run_span: Any = None
        self._call: Any = None
        self._sent_at = 0.0
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
        if self._session is not None:
            common["gen_ai.conversation.id"] = self._session
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
        self._run.add_event("quiesce.stop_requested", _cause(event.cause))

    def _run_ended(self, event: RunEnded) -> None:
        for span in (*self._tools.values(), self._call):
            if span is not None:  # the run is over, and so is everything in it
                span.end()
        self._tools.clear()
        self._call = None
        self._run.set_attributes(_receipt(event.receipt))
        if event.error is not None:
            self._fail(self._run, event.error_type or "_OTHER", event.error)
        self._run.end()
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
            **_model(event.model),
            **_parameters({} if self._config is None else self._config().settings or {}),
        }
        if self._call is not None:  # middleware may have several requests under way: this one is followed now
            self._call.end()
        self._call = self._begin(f"chat {attributes['gen_ai.request.model']}", "chat", self._run, attributes)
        self._sent_at = time.perf_counter()
        self._waiting = True
        self._make_current(self._call)

    def _answer_started(self, event: AnswerStart) -> None:
        if self._call is not None and event.model is not None:
            self._call.set_attribute("gen_ai.response.model", event.model)

    def _first_chunk(self, _: Event) -> None:
        if self._waiting and self._call is not None:
            self._waiting = False
            self._call.set_attribute("gen_ai.response.time_to_first_chunk", time.perf_counter() - self._sent_at)

    def _answer_ended(self, event: AnswerEnd) -> None:
        if self._call is not None:
            self._call.set_attribute("gen_ai.response.finish_reasons", (event.reason,))

    def _call_ended(self, event: ModelCallEnded) -> None:
        span, self._call = self._call, None
        if span is None:
            return
        entry = event.entry
        span.set_attributes(_usage(entry.usage, entry.cost))
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
            attributes["gen_ai.tool.call.arguments"] = _json(call.arguments)
        span = self._begin(f"execute_tool {call.name}", "execute_tool", self._run, attributes)
        self._tools[call.id] = span
        self._make_current(span)  # this is the tool's own task, so its spans become children

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


# --- Attributes ----------------------------------------------------------------------------------------------------


def _model(name: str) -> dict[str, Any]:
    """A model and its provider. Names of models may have colons of their own, those of providers have none."""
    provider, colon, model = name.partition(":")
    if not colon:
        return {"gen_ai.request.model": name}
    return {"gen_ai.request.model": model, "gen_ai.provider.name": _PROVIDERS.get(provider, provider)}


def _parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request that the conventions have a name for."""
    found = {name: settings[name] for name in _NUMBERS if isinstance(settings.get(name), int | float)}
    stops = settings.get("stop_sequences", settings.get("stop"))
    if stops:
        found["stop_sequences"] = (stops,) if isinstance(stops, str) else tuple(map(str, stops))
    return {f"gen_ai.request.{name}": value for name, value in found.items()}


def _cause(cause: Any) -> dict[str, Any]:
    return {
        "quiesce.stop.source": cause.source,
        "quiesce.stop.reason": cause.reason,
        "quiesce.stop.mode": str(cause.mode),
    }


def _receipt(receipt: Receipt) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "quiesce.stop_reason": receipt.stop_reason,
        "quiesce.receipt.tool_calls": tuple(f"{call.name}: {call.outcome.value}" for call in receipt.calls),
        "quiesce.receipt.still_running": receipt.still_running,
        **_usage(receipt.usage.tokens, receipt.usage.cost),
    }
    if receipt.cause is not None:
        attributes |= _cause(receipt.cause)
        attributes |= {
            "quiesce.stop.mode": str(receipt.mode or receipt.cause.mode),
            "quiesce.stop.phase": receipt.phase.value,
            "quiesce.stop.latency": receipt.latency or 0.0,
            "quiesce.receipt.kept_text": receipt.kept_text,
        }
    return attributes


def _usage(tokens: TokenUsage, cost: Cost | None) -> dict[str, Any]:
    """Usage as attributes. The conventions have one number for each; an estimate has its bounds beside it."""
    attributes: dict[str, Any] = {}
    for field, name in _FIELDS.items():
        figure = getattr(tokens, field)
        if figure.value is not None:
            attributes[name] = figure.value
        if not figure.exact:
            attributes[f"quiesce.usage.{field}.source"] = figure.source.value
            attributes[f"quiesce.usage.{field}.low"] = figure.low
            if figure.high is not None:
                attributes[f"quiesce.usage.{field}.high"] = figure.high
    for bound in ("value", "low", "high"):
        amount: Decimal | None = None if cost is None else getattr(cost, bound)
        if amount is not None:
            attributes[f"quiesce.cost.{bound}"] = float(amount)
    return attributes


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
