"""Middleware: code around each model call and each tool call, which may change it or answer instead.

    class Terse(Middleware):
        def model_call(self, call, next):
            return next(call.replace(instructions="Answer in one sentence."))

`model_call` has the form of `Model.stream`: an async context manager of deltas. Leaving the context hangs up, at once
and whatever the reason. An async generator of deltas could not promise that: one that is left in the middle is closed
when the garbage collector finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypedDict, Unpack, cast

from msgspec import Struct, structs

from ..errors import ConfigurationError
from ..events import AnswerEnd, Delta, Event, ModelCallWaiting, TextDelta
from ..messages import Message, ToolCall, ToolResult
from ..models.base import CachePolicy, Model, ModelRequest, ToolChoice, ToolSpec
from ..models.resolve import resolve_model
from ..run_context import DepsT, RunContext
from ..tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class RequestChanges(TypedDict, total=False):
    """What of a request can be changed: see `ModelRequest`, and the model that it goes to."""

    model: Model | str
    messages: Sequence[Message]
    instructions: str | None
    tools: Iterable[ToolSpec | Tool]
    settings: Mapping[str, Any] | None
    output_schema: dict[str, Any] | None
    max_tokens: int | None
    tool_choice: ToolChoice | None
    cache: CachePolicy | None


class ModelCall(Struct, Generic[DepsT], frozen=True):
    """A request that is about to be sent.

    context   the run, with its `deps`
    model     the model that it goes to
    request   its messages, instructions, tools and settings
    turn      the number of the turn, from 1
    attempt   the number of the try in this turn, from 1
    """

    context: RunContext[DepsT]
    model: Model
    request: ModelRequest
    turn: int
    attempt: int
    emit: Callable[[Event], object]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation that is sent."""
        return self.request.messages

    @property
    def deps(self) -> DepsT:
        """What the caller gave as `deps=`."""
        return self.context.deps

    def replace(self, **changes: Unpack[RequestChanges]) -> ModelCall[DepsT]:
        """The same call with another model, or other parts of the request. The conversation itself is not changed."""
        fields: dict[str, Any] = {**changes}
        model = fields.pop("model", self.model)
        if "tools" in fields:
            fields["tools"] = tuple(each.spec if isinstance(each, Tool) else each for each in fields["tools"])
        if "messages" in fields:
            fields["messages"] = tuple(fields["messages"])
        request = structs.replace(self.request, **fields) if fields else self.request
        return structs.replace(self, model=resolve_model(model), request=request)

    def note_waiting(self, reason: str) -> None:
        """Tell the run's readers what this call waits for (`ModelCallWaiting`)."""
        self.emit(ModelCallWaiting(self.turn, self.model.name, reason))


class ToolCallRequest(Struct, Generic[DepsT], frozen=True):
    """A tool call that is about to be made.

    context   the run, with its `deps`
    call      the call, with the model's arguments, or those that a person has put in their place
    tool      the tool; None when there is none of this name
    """

    context: RunContext[DepsT]
    call: ToolCall
    tool: Tool | None

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments."""
        return self.call.arguments

    @property
    def deps(self) -> DepsT:
        """What the caller gave as `deps=`."""
        return self.context.deps

    def replace(self, *, arguments: dict[str, Any]) -> ToolCallRequest[DepsT]:
        """The same call with other arguments. They are checked against the tool's schema like the model's."""
        call = ToolCall(self.call.id, self.call.name, arguments, None, self.call.provider_data)
        return structs.replace(self, call=call)


Deltas: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Delta]]
Send: TypeAlias = "Callable[[ModelCall[DepsT]], AbstractAsyncContextManager[AsyncIterator[Delta]]]"
RunTool: TypeAlias = "Callable[[ToolCallRequest[DepsT]], Awaitable[ToolResult]]"


class Middleware(Generic[DepsT]):
    """Override what is needed. The first one in `middleware=[...]` is the outermost.

    One object serves all runs of an agent, at once and from several threads: what belongs to one run is in
    `call.context`. An exception ends the run, or is the result of the tool call. A stop cancels what a middleware
    awaits, and does not wait for one that does not let the cancellation pass.
    """

    def model_call(self, call: ModelCall[DepsT], next: Send[DepsT], /) -> Deltas:
        """A context manager of the answer's deltas: that of `next`, with another call if wanted, or one of your own.

        Each `next(call)` that is entered is one request, with its own entry in the ledger. Usually written as an async
        generator with `@asynccontextmanager`, which yields once.
        """
        return next(call)

    async def tool_call(self, call: ToolCallRequest[DepsT], next: RunTool[DepsT], /) -> Any:
        """The result of a call: the `ToolResult` of `next(call)`, or whatever a tool may return instead.

        `next` runs the tool, once: after its approval, by its stop policy. When the run is stopped after the tool has
        finished, the tool's own result stands.
        """
        return await next(call)


def checked_middleware(middleware: object) -> tuple[Middleware[Any], ...]:
    """A list of middleware. Raises `ConfigurationError` for what is none."""
    if middleware is None:
        return ()
    if isinstance(middleware, str | Middleware | Mapping) or not isinstance(middleware, Iterable):
        raise ConfigurationError(f"middleware={middleware!r} makes no sense.", todo="Use a list of Middleware objects.")
    found: list[Middleware[Any]] = []
    for each in cast("Iterable[object]", middleware):
        kind: Any = type(each)
        if not issubclass(kind, Middleware):
            raise ConfigurationError(f"{each!r} is not a Middleware.", todo="Derive its class from quiesce.Middleware.")
        method: Any = cast("Any", each).model_call
        if inspect.isasyncgenfunction(method) or inspect.iscoroutinefunction(method):
            raise ConfigurationError(
                f"{kind.__name__}.model_call is an async function.",
                todo="Decorate it with @asynccontextmanager, and yield the deltas of the answer once.",
            )
        found.append(cast("Middleware[Any]", each))
    return tuple(found)


def around_model_calls(middleware: tuple[Middleware[Any], ...]) -> tuple[Middleware[Any], ...]:
    """Those that override `model_call`."""
    return tuple(each for each in middleware if type(each).model_call is not Middleware.model_call)


def around_tool_calls(middleware: tuple[Middleware[Any], ...]) -> tuple[Middleware[Any], ...]:
    """Those that override `tool_call`."""
    return tuple(each for each in middleware if type(each).tool_call is not Middleware.tool_call)


def chain_model_calls(middleware: tuple[Middleware[Any], ...], send: Send[Any]) -> Send[Any]:
    """All of them around `send`, the first one outermost."""
    for each in reversed(middleware):
        send = _ModelLink(each, send)
    return send


def chain_tool_calls(middleware: tuple[Middleware[Any], ...], run: RunTool[Any]) -> Callable[..., Awaitable[Any]]:
    """All of them around `run`, the first one outermost."""
    for each in reversed(middleware):
        run = _ToolLink(each, run)
    return run


class _ModelLink:
    """One middleware, and what it calls next."""

    def __init__(self, middleware: Middleware[Any], send: Send[Any]) -> None:
        self._middleware: Final = middleware
        self._send: Final = send

    def __call__(self, call: ModelCall[Any]) -> Deltas:
        return self._closing(self._middleware.model_call(call, self._send))

    @asynccontextmanager
    async def _closing(self, answer: Deltas) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Close what yields the deltas before the context is left: a generator that is left open is closed too late."""
        async with answer as deltas:
            try:
                yield deltas
            finally:
                close = getattr(deltas, "aclose", None)
                if close is not None:
                    await close()


class _ToolLink:
    def __init__(self, middleware: Middleware[Any], run: RunTool[Any]) -> None:
        self._middleware: Final = middleware
        self._run: Final = run

    def __call__(self, call: ToolCallRequest[Any]) -> Awaitable[Any]:
        return self._middleware.tool_call(call, self._run)


@asynccontextmanager
async def text_answer(text: str) -> AsyncGenerator[AsyncIterator[Delta]]:
    """An answer of your own instead of a request: `return text_answer("We are closed.")`."""
    deltas = _spoken(text)
    try:
        yield deltas
    finally:
        await deltas.aclose()


async def _spoken(text: str) -> AsyncGenerator[Delta]:
    yield TextDelta(text)
    yield AnswerEnd("end_turn")
