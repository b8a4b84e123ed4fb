"""A function that a model may call."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
    runtime_checkable,
)

from ..errors import InvalidTool, ToolError
from ..interrupts import Approval
from ..models.base import ToolSpec
from ..run_context import RunContext
from .context import ToolContext
from .policy import FINAL_GRACE, OnStop, ToolStopPolicy, is_number, make_stop_policy
from .undo.compensation import DEFAULT_UNDO_TIMEOUT, Compensation

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from .worker.function_transfer import TransferredFunction

if TYPE_CHECKING:
    import typing_extensions

    P = typing_extensions.ParamSpec("P", default=...)
    R = typing_extensions.TypeVar("R", default=Any)
else:  # the defaults are for type checkers
    P = ParamSpec("P")
    R = TypeVar("R")
_F = TypeVar("_F", bound=Callable[..., Any])
Kind: TypeAlias = Literal["sync", "async", "generator"]
ApprovalWanted: TypeAlias = bool | str | Approval | None
RequiresApproval: TypeAlias = (
    bool
    | Callable[[dict[str, Any]], ApprovalWanted | Awaitable[ApprovalWanted]]
    | Callable[[RunContext[Any], dict[str, Any]], ApprovalWanted | Awaitable[ApprovalWanted]]
)

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ARGUMENT: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_SECTION: Final = re.compile(
    r"^\s*(args|arguments|parameters|returns?|raises|yields?|examples?|notes?)\s*:\s*$", re.IGNORECASE
)


class Tool(Generic[P, R]):
    """A function with a name, a description, a schema and a stop policy.

    It can be called like its function. Raises `InvalidTool` when the function cannot be offered to a model.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        on_stop: OnStop | None = None,
        grace: float | None = None,
        timeout: float | None = None,
        max_memory: int | None = None,
        max_cpu: float | None = None,
        inherit_env: bool | Collection[str] = True,
        sequential: bool = False,
        requires_approval: RequiresApproval = False,
        approval_expires_in: float | None = None,
        preview: Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidTool(f"{function!r} is no tool.", todo="Give a function, a tool, an agent or a set of tools.")
        functools.update_wrapper(self, function)
        self.function: Final = function
        given = name not in (None, "")
        self.name: Final = _checked_name(name if given else getattr(function, "__name__", type(function).__name__))
        self.kind: Final = _kind(function)
        self.policy: Final[ToolStopPolicy] = make_stop_policy(
            on_stop,
            grace,
            is_async=self.kind != "sync",
            timeout=timeout,
            max_memory=max_memory,
            max_cpu=max_cpu,
            inherit_env=inherit_env,
        )
        _check_options(self.name, description, sequential, requires_approval, approval_expires_in, preview=preview)
        self.sequential: Final = sequential
        self.requires_approval: Final = requires_approval
        self.approval_expires_in: Final = approval_expires_in
        self._preview: Final = preview
        self.compensation: Compensation | None = None
        self.final_grace = FINAL_GRACE
        """The seconds that a cancelled call has to unwind when no grace is left."""
        self.handoff_to: HandoffTarget | None = None
        """The agent that continues after a turn in which this tool was called."""
        summary, self._argument_notes = _read_docstring(inspect.getdoc(function) or "")
        self.description: Final = description or summary or self.name

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
            check_types(_signature(self.function, self.name)[0])
        except NotTransferable as error:
            raise _not_transferable(self.name, error) from None
        self.transferred_function()

    @functools.cached_property
    def _arguments(self) -> tuple[_ArgumentType, str | None]:
        return _argument_type(self.function, self.name, self._argument_notes)

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

    def preview_text(self, arguments: dict[str, Any]) -> str | None:
        """What a call with these arguments would do, for the person who approves it; None without a preview."""
        return None if self._preview is None else self._preview(arguments)

    def defaults(self) -> dict[str, Any]:
        """The arguments with their defaults. Types are read only where they are needed, because that is slow."""
        parameters = inspect.signature(self.function).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in parameters):  # a tool that is known by its schema only
            return dict.fromkeys(self.spec.schema["properties"], inspect.Parameter.empty)
        return {each.name: each.default for each in parameters if not _takes_context(each)}

    @property
    def deps_type(self) -> Any:
        """The type of `deps` that the tool needs, from its `ToolContext[...]`; None when it does not say."""
        hints, parameters = _signature(self.function, self.name)
        found = (get_args(hints.get(each.name)) for each in parameters if _takes_context(each))
        return next((arguments[0] for arguments in found if arguments), None)

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `ToolContext`, if there is one."""
        return self._arguments[1]

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises `ToolError`, in words for the model, for invalid ones."""
        return self._arguments[0].validate(arguments)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTool(
            f"A tool cannot be named {name!r}.", todo="Use up to 64 letters, digits, '_' and '-': @tool(name=...)."
        )
    return name


def _check_options(
    name: str,
    description: object,
    sequential: object,
    requires_approval: object,
    expires_in: float | None,
    *,
    preview: object,
) -> None:
    """Raises `InvalidTool` for options of `@tool` that cannot be meant."""
    wrong = (
        ("description", description, description is None or isinstance(description, str), "text"),
        ("sequential", sequential, isinstance(sequential, bool), "True or False"),
        (
            "requires_approval",
            requires_approval,
            isinstance(requires_approval, bool) or _is_function(requires_approval),
            "True, False, or a function of (arguments) or of (ctx, arguments)",
        ),
        (
            "approval_expires_in",
            expires_in,
            expires_in is None or (is_number(expires_in) and 0 < expires_in < float("inf")),
            "a number of seconds above 0, or None",
        ),
        ("preview", preview, preview is None or _is_function(preview), "a function of the arguments, or None"),
    )
    for option, value, is_good, todo in wrong:
        if not is_good:
            raise InvalidTool(f"Tool {name!r} has {option}={value!r}, which makes no sense.", todo=f"Use {todo}.")


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


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


class _ArgumentType:
    """A function's parameters as a type that validates and describes itself."""

    def __init__(self, adapter: TypeAdapter[Any], tool_name: str) -> None:
        self._adapter: Final = adapter
        self._tool_name: Final = tool_name

    def json_schema(self) -> dict[str, Any]:
        schema = self._adapter.json_schema()
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        try:
            return dict(self._adapter.validate_python(arguments))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise ToolError(f"The arguments of {self._tool_name} are not valid: {faults}.") from None


def _kind(function: Callable[..., Any]) -> Kind:
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    return _kind_of(function if plain else function.__call__)  # pyright: ignore[reportUnknownArgumentType]


def _kind_of(target: Any) -> Kind:
    if inspect.isasyncgenfunction(target):
        return "generator"
    return "async" if inspect.iscoroutinefunction(target) else "sync"


def _argument_type(
    function: Callable[..., Any], tool_name: str, notes: dict[str, str]
) -> tuple[_ArgumentType, str | None]:
    from typing import NotRequired

    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from typing_extensions import TypedDict

    hints, parameters = _signature(function, tool_name)
    context_parameter: str | None = None
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidTool(
                f"Tool {tool_name!r} has a parameter {parameter} that a model cannot fill by name.",
                todo="Use plain named parameters.",
            )
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext or get_origin(hint) is ToolContext:
            context_parameter = parameter.name
            continue
        described = _described(hint, parameter, notes.get(parameter.name), tool_name)
        fields[parameter.name] = described if parameter.default is parameter.empty else NotRequired[described]
    typed = TypedDict(f"{tool_name}_arguments", fields)  # pyright: ignore[reportUnknownVariableType, reportGeneralTypeIssues, reportArgumentType]
    typed.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=False)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return _ArgumentType(TypeAdapter(typed), tool_name), context_parameter
    except PydanticUserError as error:
        raise InvalidTool(
            f"Tool {tool_name!r} has a parameter whose type has no JSON form: {error.message.splitlines()[0]}",
            todo="Use types that pydantic can describe.",
        ) from None


def _described(hint: Any, parameter: inspect.Parameter, note: str | None, tool_name: str) -> Any:
    """A parameter's type with what its docstring and its default say. A `Field` in its own annotation says more."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if isinstance(parameter.default, FieldInfo):
        raise InvalidTool(
            f"Tool {tool_name!r} has Field(...) as the default of {parameter.name!r}: the function would get that.",
            todo=f"Write {parameter.name}: Annotated[..., Field(...)], with the default after it.",
        )
    base, *own = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    extra: dict[str, Any] = {} if parameter.default is parameter.empty else _default_of(parameter.default)
    return Annotated[base, Field(description=note, json_schema_extra=extra or None), *own]


def _takes_context(parameter: inspect.Parameter) -> bool:
    """Whether this looks like the parameter for the `ToolContext`. The types are not read for it."""
    hint = parameter.annotation
    if isinstance(hint, str):
        return hint.partition("[")[0].split(".")[-1] == ToolContext.__name__
    return hint is ToolContext or get_origin(hint) is ToolContext


def _signature(function: Callable[..., Any], tool_name: str) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    target: Any = function.func if isinstance(function, functools.partial) else function  # pyright: ignore[reportUnknownMemberType]
    if not (inspect.isroutine(target) or inspect.isfunction(target)):
        target = target.__call__
    try:
        return get_type_hints(target, include_extras=True), list(inspect.signature(function).parameters.values())  # pyright: ignore[reportUnknownArgumentType]
    except (NameError, TypeError, ValueError) as error:
        raise InvalidTool(
            f"The type hints of tool {tool_name!r} cannot be read: {error}.",
            todo="Import the names it uses at module level, outside TYPE_CHECKING.",
        ) from None


def _default_of(default: Any) -> dict[str, Any]:
    """The default as the schema shows it; nothing for values that are not plain JSON."""
    return {"default": default} if default is None or isinstance(default, str | int | float | bool) else {}


def _read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The description, and a note for each argument, from a docstring with an `Args:` section."""
    summary: list[str] = []
    notes: dict[str, str] = {}
    section, last = "", ""
    for line in doc.splitlines():
        heading = _SECTION.match(line)
        if heading is not None:
            section = heading.group(1).lower()
        elif not section:
            summary.append(line)
        elif section in ("args", "arguments", "parameters"):
            argument = _ARGUMENT.match(line)
            if argument is not None:
                last = argument.group(1)
                notes[last] = argument.group(2).strip()
            elif last and line.strip():
                notes[last] += f" {line.strip()}"
    return "\n".join(summary).strip(), notes


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_stop: OnStop | None = None,
    grace: float | None = None,
    timeout: float | None = None,
    max_memory: int | None = None,
    max_cpu: float | None = None,
    inherit_env: bool | Collection[str] = True,
    sequential: bool = False,
    requires_approval: RequiresApproval = False,
    approval_expires_in: float | None = None,
    preview: Callable[[dict[str, Any]], str | None] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: its type hints become the schema, its docstring the description.

    Sync functions run in a thread, async ones in a task. An async generator reports each value that it yields as
    progress; the last value is its result. `on_stop` and `grace` say what a stop means for it (see `ToolStopPolicy`);
    with `on_stop="kill"` it runs in a process of its own, which `max_memory` (bytes) and `max_cpu` (seconds) can limit,
    and which finds this process's environment, or with `inherit_env` a part of it: names, or False for a small one.
    A call that takes longer than `timeout` seconds is stopped in the same way, and its result says so.
    `sequential=True` keeps it from running beside other sequential tools of the same turn.

    `requires_approval=True` lets a person decide about each call, before it starts (see `Agent.answer`). A function of
    `(arguments)` or `(ctx, arguments)`, sync or async, returns whether an approval is needed: a bool, or an `Approval`
    or a text, which is shown as the preview; if it raises, an approval is needed. `preview` is a function of the
    arguments that returns what the call would do. After `approval_expires_in` seconds the call can no longer be
    approved.

    Raises `InvalidTool` or `ConfigurationError` when that cannot work.
    """
    if function is not None:
        return Tool(function)

    def decorate(decorated: Callable[..., Any]) -> Tool:
        return Tool(decorated, **options)

    return decorate
