"""Callbacks around each transition of a run.

A hook is a function, sync or async, whose first parameter is annotated with the hook events it wants:

    def audit(event: BeforeToolCall | AfterToolCall) -> None: ...

    Agent(..., hooks=[audit])

Hooks may cancel the run and may replace one tool call's result. An async hook that is waiting is cut by a stop like
everything else. One that fails becomes a `HookFailed` event; the run goes on. Sync hooks run in the event loop and
should be short.
"""

from __future__ import annotations

import inspect
import time
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, cast, get_args, get_type_hints

from .cancellation import CancellationToken, Cause, Mode, ModeName, TokenView
from .cancellation.raised import is_own_error
from .errors import ConfigurationError
from .interrupts import AnswerRecord, Interrupt, InterruptSignal
from .messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from .models.base import ModelRequest
from .receipt import LateOutcome, Receipt
from .result import RunResult
from .run_context import RunContext
from .tools.output import as_result_of, completed_result
from .tools.questions import CallQuestions

# What does what an assignment to a hook event was meant to do.
_INSTEAD: Final = {
    "BeforeModelCall": "To change a request, use middleware: Middleware.model_call.",
    "AfterModelCall": "To change an answer, use middleware: Middleware.model_call.",
    "BeforeToolCall": "To answer the call, use event.replace(...); to change its arguments, Middleware.tool_call.",
    "BeforeApproval": "To approve the call, use event.approve().",
    "AfterToolCall": "To change the result, use event.replace(...).",
}
_OTHERWISE: Final = "A hook may call event.cancel(...), write to event.state, or use what is in event.deps."


class HookEvent:
    """What every hook event has: the context of its run, and a way to stop the run.

    Its attributes cannot be assigned to: that would change nothing in the run.
    """

    _fields: ClassVar[frozenset[str]] = frozenset({"context"})

    def __init_subclass__(cls) -> None:
        cls._fields = cls._fields | {*inspect.signature(cls.__init__).parameters}

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or (name in self._fields and name not in self.__dict__):  # set once, when it is made
            super().__setattr__(name, value)
            return
        kind = type(self).__name__
        raise AttributeError(
            f"{kind}.{name} cannot be assigned to: it would change nothing in the run. {_INSTEAD.get(kind, _OTHERWISE)}"
        )

    def __init__(self, context: RunContext[Any], token: CancellationToken) -> None:
        self.context: Final = context
        self._token: Final = token

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.context.run_id

    @property
    def token(self) -> TokenView:
        """Whether, and why, the run was asked to stop."""
        return self.context.token

    @property
    def deps(self) -> Any:
        """What the caller gave as `deps=`."""
        return self.context.deps

    @property
    def state(self) -> dict[str, Any]:
        """The state of the conversation."""
        return self.context.state

    def cancel(self, reason: str = "", *, mode: ModeName | Mode = "now") -> None:
        """Ask the run to stop (cause: `hook`). Returns at once."""
        self._token.cancel(reason, mode=mode, source="hook")


class BeforeRun(HookEvent):
    """The prompt is in the conversation; nothing was sent yet. `prompt` is None when the run resumes a turn."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, prompt: UserMessage | None) -> None:
        super().__init__(context, token)
        self.prompt: Final = prompt


class AfterRun(HookEvent):
    """The run is at rest. Bounded in time after a stop."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, result: RunResult) -> None:
        super().__init__(context, token)
        self.result: Final = result


class BeforeModelCall(HookEvent):
    """A request is about to be sent."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, request: ModelRequest, attempt: int) -> None:
        super().__init__(context, token)
        self.request: Final = request
        self.attempt: Final = attempt


class AfterModelCall(HookEvent):
    """The model's answer is complete; its tools have not started."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, message: AssistantMessage) -> None:
        super().__init__(context, token)
        self.message: Final = message


class _ToolHookEvent(HookEvent):
    def __init__(self, context: RunContext[Any], token: CancellationToken, call: ToolCall) -> None:
        super().__init__(context, token)
        self.call: Final = call
        self._replacement: ToolResult | None = None

    def replace(self, value: Any) -> None:
        """Answer the call with `value` (whatever a tool may return, or a `ToolResult`) instead of the tool's result."""
        made = as_result_of if isinstance(value, ToolResult) else completed_result
        self._replacement = made(self.call, value)

    @property
    def replacement(self) -> ToolResult | None:
        """The result that a hook has set, if any."""
        return self._replacement


class BeforeToolCall(_ToolHookEvent):
    """A tool is about to start. With `replace()` it does not."""

    def __init__(
        self, context: RunContext[Any], token: CancellationToken, call: ToolCall, questions: CallQuestions | None = None
    ) -> None:
        super().__init__(context, token, call)
        self._questions: Final = questions or CallQuestions(call)

    def interrupt(self, name: str, reason: Any = None, *, expires_in: float | None = None) -> Any:
        """Ask a person about this call, and return the answer. See `ToolContext.interrupt`.

        The first time, this leaves the hook, and the tool does not start. When the run is resumed, the hooks for this
        call are called again, from the first.
        """
        return self._questions.ask(name, reason, expires_in=expires_in)


class BeforeApproval(HookEvent):
    """A call needs the approval of a person, who is about to be asked. With `approve()` the person is not asked.

    `interrupt` is what would be asked, with the arguments that the tool would be called with. `definition` is the same
    for the same name, description, parameters and defaults of the tool, and another one after any of these has changed.
    """

    def __init__(
        self, context: RunContext[Any], token: CancellationToken, interrupt: Interrupt, definition: str
    ) -> None:
        super().__init__(context, token)
        self.interrupt: Final = interrupt
        self.definition: Final = definition
        self._record: AnswerRecord | None = None

    def approve(self, by: str = "", *, standing: str = "") -> None:
        """Approve the call. `by` is the person who has approved it in advance, and `standing` the id of that approval.

        The run emits both as an `InterruptAnswered` event; the model does not get them.
        """
        asked = self.interrupt
        self._record = AnswerRecord(
            asked.id, asked.call_id, asked.tool_name, "approved", by, time.time(), standing=standing
        )

    @property
    def record(self) -> AnswerRecord | None:
        """The approval that a hook has given, if any."""
        return self._record


class AfterToolCall(_ToolHookEvent):
    """A call has its result."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, call: ToolCall, result: ToolResult) -> None:
        super().__init__(context, token, call)
        self.result: Final = result


class OnMessage(HookEvent):
    """A message was added to the conversation."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, message: Message) -> None:
        super().__init__(context, token)
        self.message: Final = message


class OnStop(HookEvent):
    """The run has seen a stop and is settling. Bounded in time."""

    def __init__(self, context: RunContext[Any], token: CancellationToken, cause: Cause) -> None:
        super().__init__(context, token)
        self.cause: Final = cause


class OnLateOutcome(HookEvent):
    """An abandoned tool call has ended. `receipt` is None while the run is still going on."""

    def __init__(
        self, context: RunContext[Any], token: CancellationToken, outcome: LateOutcome, receipt: Receipt | None
    ) -> None:
        super().__init__(context, token)
        self.outcome: Final = outcome
        self.receipt: Final = receipt


_EVENTS: Final = (
    BeforeRun,
    AfterRun,
    BeforeModelCall,
    AfterModelCall,
    BeforeToolCall,
    BeforeApproval,
    AfterToolCall,
    OnMessage,
    OnStop,
    OnLateOutcome,
)
_Done: TypeAlias = Awaitable[None] | None
Hook: TypeAlias = (
    Callable[[BeforeRun], _Done]
    | Callable[[AfterRun], _Done]
    | Callable[[BeforeModelCall], _Done]
    | Callable[[AfterModelCall], _Done]
    | Callable[[BeforeToolCall], _Done]
    | Callable[[BeforeApproval], _Done]
    | Callable[[AfterToolCall], _Done]
    | Callable[[OnMessage], _Done]
    | Callable[[OnStop], _Done]
    | Callable[[OnLateOutcome], _Done]
)
"""A function of one of the events, or of several: `BeforeRun | AfterRun`, or `HookEvent` for all of them."""
OnFailure: TypeAlias = Callable[[str, HookEvent, BaseException], None]


class Hooks:
    """The hooks of an agent, by the event types that they take. Raises `ConfigurationError` for a hook without one."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks: Final[list[tuple[tuple[type[HookEvent], ...], Hook]]] = []
        self.wanted: Final[set[type[HookEvent]]] = set()
        """The events that at least one hook wants."""
        if isinstance(hooks, str | bytes | Mapping) or not isinstance(hooks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"hooks={hooks!r} makes no sense.", todo="Use a list of functions.")
        for hook in hooks:
            self.add(hook)

    def add(self, hook: Hook, *events: type[HookEvent]) -> None:
        """Register a hook, for the events given or for those that its first parameter names."""
        events = events or _wanted(hook)
        self._hooks.append((events, hook))
        self.wanted.update(event for event in _EVENTS if issubclass(event, events))

    def copy(self) -> Hooks:
        """The same hooks, to add others to."""
        return Hooks().joined(self)

    def joined(self, others: Hooks) -> Hooks:
        """These hooks, then those of the others that are not here already."""
        both = Hooks()
        for events, hook in (*self._hooks, *(each for each in others._hooks if each not in self._hooks)):
            both.add(hook, *events)
        return both

    async def call(self, event: HookEvent, on_failure: OnFailure) -> None:
        """Call each hook that wants this event, one after the other, in the order in which they were registered."""
        for hook in [hook for events, hook in self._hooks if isinstance(event, events)]:
            try:
                outcome = cast("Callable[[HookEvent], _Done]", hook)(event)
                if inspect.isawaitable(outcome):
                    await outcome
            except InterruptSignal:  # a hook asks a person
                raise
            except BaseException as error:
                if not is_own_error(error):
                    raise
                on_failure(hook_name(hook), event, error)


def check_events(events: Iterable[object]) -> None:
    """Raises `ConfigurationError` for what is not a hook event."""
    for each in events:
        if not (isinstance(each, type) and issubclass(each, HookEvent)):
            raise ConfigurationError(
                f"{each!r} is not a hook event.", todo="Write @agent.hook(), with nothing but hook events inside ()."
            )


def hook_name(hook: Hook) -> str:
    """The name of a hook in events and receipts."""
    return getattr(hook, "__qualname__", None) or type(hook).__name__


def _wanted(hook: Hook) -> tuple[type[HookEvent], ...]:
    if not callable(hook):
        raise _not_a_hook(hook)
    target = hook if inspect.isroutine(hook) else hook.__call__
    try:
        hints = get_type_hints(target)
        first = next(name for name in inspect.signature(hook).parameters)
    except (NameError, TypeError, ValueError, StopIteration) as error:
        raise _not_a_hook(hook) from error
    hint = hints.get(first)
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    wanted: tuple[Any, ...] = get_args(hint) if is_union else (hint,)
    if not all(isinstance(kind, type) and issubclass(kind, HookEvent) for kind in wanted):
        raise _not_a_hook(hook)
    return wanted


def _not_a_hook(hook: object) -> ConfigurationError:
    return ConfigurationError(
        f"{hook!r} is not a hook.", todo="Annotate its first parameter with the hook events that it wants."
    )
