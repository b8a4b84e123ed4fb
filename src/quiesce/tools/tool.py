"""A function that a model may call."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
    runtime_checkable,
)

from ..conversation.answer import well_formed
from ..errors import InvalidTool, ToolError
from ..interrupts import Approval
from ..models.base import ToolSpec
from ..run_context import RunContext
from .arguments import ArgumentType, argument_type, read_docstring, signature, takes_context
from .policy import FINAL_GRACE, ToolStopPolicy, ToolStopPolicyName, is_number, make_stop_policy
from .undo.compensation import DEFAULT_UNDO_TIMEOUT, Compensation

if TYPE_CHECKING:
    import typing_extensions

    from .worker.function_transfer import TransferredFunction

    P = typing_extensions.ParamSpec("P", default=...)
    R = typing_extensions.TypeVar("R", default=Any)
else:  # the defaults are for type checkers
    P = ParamSpec("P")
    R = TypeVar("R")
_F = TypeVar("_F", bound=Callable[..., Any])
FunctionKind: TypeAlias = Literal["sync", "async", "generator"]
ApprovalWanted: TypeAlias = bool | str | Approval | None
RequiresApproval: TypeAlias = (
    bool
    | Callable[[dict[str, Any]], ApprovalWanted | Awaitable[ApprovalWanted]]
    | Callable[[RunContext[Any], dict[str, Any]], ApprovalWanted | Awaitable[ApprovalWanted]]
)
Sequential: TypeAlias = bool | Callable[[dict[str, Any]], object]
Preview: TypeAlias = Callable[[dict[str, Any]], str | None]
MaxResult: TypeAlias = int | Literal["agent"] | None
MIN_RESULT: Final = 1000

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOptions(TypedDict, total=False):
    """The options of a tool, which `tool` describes."""

    name: str | None
    description: str | None
    on_stop: ToolStopPolicyName | None
    grace: float | None
    timeout: float | None
    max_memory: int | None
    max_cpu: float | None
    inherit_env: bool | Collection[str]
    sequential: Sequential
    requires_approval: RequiresApproval
    approval_expires_in: float | None
    preview: Preview | None
    max_result: MaxResult
    idempotent: bool


class Tool(Generic[P, R]):
    """A function with a name, a description, a schema and a stop policy.

    It can be called like its function. Raises `InvalidTool` when the function cannot be offered to a model.
    """

    delegate: HandoffTarget | None = None
    """The agent of which a call of this tool is a run."""

    def __init__(self, function: Callable[P, R], **options: Unpack[ToolOptions]) -> None:
        if not callable(function):
            raise InvalidTool(f"{function!r} is no tool.", todo="Give a function, a tool, an agent or a set of tools.")
        functools.update_wrapper(self, function)
        self.function: Final = function
        name = options.get("name")
        given = name not in (None, "")
        self.name: Final = _checked_name(name if given else getattr(function, "__name__", type(function).__name__))
        _check_options(self.name, options)
        self.kind: Final = _kind(function)
        self.policy: Final[ToolStopPolicy] = make_stop_policy(
            options.get("on_stop"),
            options.get("grace"),
            is_async=self.kind != "sync",
            timeout=options.get("timeout"),
            max_memory=options.get("max_memory"),
            max_cpu=options.get("max_cpu"),
            inherit_env=options.get("inherit_env", True),
        )
        self._options: Final = options
        self.max_result: Final = _checked_max_result(self.name, options.get("max_result", "agent"))
        self.sequential: Final = options.get("sequential", False)
        self.requires_approval: Final = options.get("requires_approval", False)
        self.idempotent: Final = options.get("idempotent", False)
        self.approval_expires_in: Final = options.get("approval_expires_in")
        self.compensation: Compensation | None = None
        self.final_grace = FINAL_GRACE
        """The seconds that a cancelled call has to unwind when no grace is left."""
        self.handoff_to: HandoffTarget | None = None
        """The agent that continues after a turn in which this tool was called."""
        summary, self._argument_notes = read_docstring(inspect.getdoc(function) or "")
        self.description: Final = well_formed(options.get("description") or summary or self.name)

    def with_(self, **changes: Unpack[ToolOptions]) -> Tool[P, R]:
        """A copy of this tool with other options, such as `requires_approval=True`. All else stays, also the undo.

        Raises `InvalidTool` or `ConfigurationError` for options that cannot work.
        """
        changed = copy.copy(self)  # a tool that an MCP server describes has attributes of its own
        for cached in ("spec", "_arguments"):  # the name or the description may be other ones
            changed.__dict__.pop(cached, None)
        Tool.__init__(changed, self.function, **{**self._options, **changes})
        changed.compensation, changed.final_grace, changed.handoff_to = (
            self.compensation,
            self.final_grace,
            self.handoff_to,
        )
        return changed

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}, on_stop={self.policy.on_stop}>"

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """The tool's description for a model. Raises `InvalidTool` when it has no schema, or cannot be run."""
        if self.policy.on_stop == "kill":
            self._check_transferable()
        return ToolSpec(self.name, self.description, self._arguments[0].json_schema())

    def transferred_function(self) -> TransferredFunction:
        """The function in the form in which it is sent to a worker process. Raises `InvalidTool` when it has none."""
        from .worker.function_pickler import NotTransferable, pack

        try:
            return pack(self.function)
        except NotTransferable as error:
            raise _not_transferable(self.name, error) from None

    def _check_transferable(self) -> None:
        from .worker.function_pickler import NotTransferable, check_types

        try:
            check_types(signature(self.function, self.name)[0])
        except NotTransferable as error:
            raise _not_transferable(self.name, error) from None
        self.transferred_function()

    @functools.cached_property
    def _arguments(self) -> tuple[ArgumentType, str | None]:
        return argument_type(self.function, self.name, self._argument_notes)

    @overload
    def undo(self, function: _F, /) -> _F: ...
    @overload
    def undo(self, function: None = None, /, *, timeout: float = ...) -> Callable[[_F], _F]: ...
    def undo(
        self, function: Callable[..., Any] | None = None, /, *, timeout: float = DEFAULT_UNDO_TIMEOUT
    ) -> Callable[..., Any]:
        """Register the compensation of this tool, the function that undoes a call: `@build.undo`.

        It is sync or async. It takes the tool's arguments by name, as many as it needs, and the tool's return value as
        `result`. It is called at most once for each completed call, by `run.cancel(undo=True)` or `result.undo()`, and
        abandoned after `timeout` seconds. Raises `InvalidTool` for any other parameter.
        """

        def register(given: _F) -> _F:
            self.compensation = Compensation(given, tool_name=self.name, arguments=self.defaults(), timeout=timeout)
            return given

        return register if function is None else register(function)

    @property
    def has_preview(self) -> bool:
        """Whether the tool can show what a call would do."""
        return self._options.get("preview") is not None

    def defaults(self) -> dict[str, Any]:
        """The arguments with their defaults. Types are read only where they are needed, because that is slow."""
        parameters = inspect.signature(self.function).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in parameters):  # a tool that is known by its schema only
            return dict.fromkeys(self.spec.schema["properties"], inspect.Parameter.empty)
        return {each.name: each.default for each in parameters if not takes_context(each)}

    def sequence_key(self, arguments: dict[str, Any]) -> object:
        """What orders a call with these arguments among the calls of its turn; see `sequential` of `tool`.

        None: nothing does. True: it comes after every earlier call that has a key, and before every later one. Any
        other value: the same among calls with an equal key. True also when the function for it fails.
        """
        if not callable(self.sequential):
            return self.sequential or None
        try:
            return self.sequential(self.validate(arguments))
        except Exception:  # when in doubt, in order; invalid arguments are reported by the call itself
            return True

    @property
    def deps_type(self) -> Any:
        """The type of `deps` that the tool needs, from its `ToolContext[...]`; None when it does not say."""
        hints, parameters = signature(self.function, self.name)
        found = (get_args(hints.get(each.name)) for each in parameters if takes_context(each))
        return next((arguments[0] for arguments in found if arguments), None)

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `ToolContext`, if there is one."""
        return self._arguments[1]

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises `ToolError`, in words for the model, for invalid ones."""
        return self._arguments[0].validate(arguments)

    def preview_text(self, arguments: dict[str, Any]) -> str | None:
        """What a call with these arguments would do, for a person who decides about it: a diff, a command.

        None without `preview=`. It never raises: for arguments that are not valid, and when the preview fails, the text
        says so. A preview may read files, so an event loop calls this in a thread.
        """
        preview = self._options.get("preview")
        if preview is None:
            return None
        try:
            text = preview(self.validate(arguments))
            return None if text is None else str(text)
        except Exception as error:  # the approval is asked for in any case
            what = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
            return f"There is no preview: {what}"


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTool(
            f"A tool cannot be named {name!r}.", todo="Use up to 64 letters, digits, '_' and '-': @tool(name=...)."
        )
    return name


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises `InvalidTool` for options of `@tool` that do not exist, or cannot be meant."""
    for option in options:
        if option not in ToolOptions.__annotations__:
            known = ", ".join(ToolOptions.__annotations__)
            raise InvalidTool(f"Tool {name!r} has no option {option!r}.", todo=f"Use one of: {known}.")
    description, expires_in = options.get("description"), options.get("approval_expires_in")
    wrong = [
        ("description", description is None or isinstance(description, str), "text"),
        (
            "approval_expires_in",
            expires_in is None or (is_number(expires_in) and 0 < expires_in < float("inf")),
            "a number of seconds above 0, or None",
        ),
        ("idempotent", isinstance(options.get("idempotent", False), bool), "True or False"),
        ("preview", _is_function(options.get("preview"), or_else=None), "a function of the arguments, or None"),
    ]
    wrong += [
        (each, _is_function(options.get(each, False), or_else=bool), "True, False, or a function of the arguments")
        for each in ("sequential", "requires_approval")
    ]
    for option, is_good, todo in wrong:
        if not is_good:
            value = options[option]
            raise InvalidTool(f"Tool {name!r} has {option}={value!r}, which makes no sense.", todo=f"Use {todo}.")


def _is_function(value: object, *, or_else: type[bool] | None) -> bool:
    is_other = value is None if or_else is None else isinstance(value, or_else)
    return is_other or (callable(value) and not isinstance(value, type))


def is_max_result(value: object) -> bool:
    """Whether this is a most number of characters of a result, or None for no limit."""
    return value is None or (type(value) is int and value >= MIN_RESULT)


def _checked_max_result(name: str, value: MaxResult) -> MaxResult:
    """Raises `InvalidTool` unless this is a number of characters, None, or "agent"."""
    if value != "agent" and not is_max_result(value):
        raise InvalidTool(
            f"Tool {name!r} has max_result={value!r}, which makes no sense.",
            todo=f"Use {MIN_RESULT} characters or more, or None for no limit.",
        )
    return value


def _not_transferable(name: str, error: Exception) -> InvalidTool:
    return InvalidTool(
        f"Tool {name!r} cannot run in a process of its own: {error}.",
        todo="Define it at the top of a module, or create what it needs inside it.",
    )


@runtime_checkable
class Toolset(Protocol):
    """A set of tools. An agent takes the tools that the set has when the agent is made."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools."""
        ...


class HandoffTarget(Protocol):
    """The agent that continues after a tool has asked for a handoff."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The agent's tools, by name."""
        ...


def _kind(function: Callable[..., Any]) -> FunctionKind:
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    return _kind_of(function if plain else function.__call__)  # pyright: ignore[reportUnknownArgumentType]


def _kind_of(target: Any) -> FunctionKind:
    if inspect.isasyncgenfunction(target):
        return "generator"
    return "async" if inspect.iscoroutinefunction(target) else "sync"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: its type hints become the schema, its docstring the description.

    Sync functions run in a thread, async ones in a task. An async generator reports each value that it yields as
    progress; the last value is its result. `on_stop` and `grace` say what a stop means for it (see `ToolStopPolicy`);
    with `on_stop="kill"` it runs in a process of its own, which `max_memory` (bytes) and `max_cpu` (seconds) can limit,
    and which finds this process's environment, or with `inherit_env` a part of it: names, or False for a small one.
    A call that takes longer than `timeout` seconds is stopped in the same way, and its result says so.

    The calls of one turn run in parallel. `sequential=True` puts the calls of this tool in the order in which the model
    wrote them, also among the calls of other sequential tools. A function is called with the arguments and returns a
    key, such as a path: calls with equal keys, also of different tools, run in their order, beside those with other
    keys. None leaves a call out of any order; True orders it among all keys.

    `requires_approval=True` lets a person decide about each call, before it starts (see `Agent.answer`). A function of
    `(arguments)` or `(ctx, arguments)`, sync or async, returns whether an approval is needed: a bool, or an `Approval`
    or a text, which is shown as the preview; if it raises, an approval is needed. After `approval_expires_in` seconds
    the call can no longer be approved. `preview` is called with the arguments and returns text that shows a person what
    the call would do, such as a diff (see `Tool.preview_text`).

    `idempotent=True` says that a call may run twice with the same effect. In a fleet, a call of which it is not known
    whether it has done its work, because its worker was lost, is then run again.

    Of a result that is longer than `max_result` characters the middle is cut out (see `Agent`); None for no limit.

    Raises `InvalidTool` or `ConfigurationError` when that cannot work.
    """
    if function is not None:
        return Tool(function, **options)

    def decorate(decorated: Callable[..., Any]) -> Tool:
        return Tool(decorated, **options)

    return decorate
