"""The arguments of a tool: their types, their schema and what its docstring says about them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, get_type_hints

from ..errors import InvalidTool, ToolError
from .context import ToolContext

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

_ARGUMENT: Final = r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$"
_SECTION: Final = re.compile(
    r"^\s*(args|arguments|parameters|returns?|raises|yields?|examples?|notes?)\s*:\s*$", re.IGNORECASE
)


class ArgumentType:
    """A function's parameters as a type that validates and describes itself."""

    def __init__(self, adapter: TypeAdapter[Any], tool_name: str) -> None:
        self._adapter: Final = adapter
        self._tool_name: Final = tool_name

    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments. Raises `InvalidTool` when they have none."""
        from pydantic.errors import PydanticUserError

        try:
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise _no_json_form(self._tool_name, error) from None
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises `ToolError` for invalid ones."""
        from pydantic import ValidationError

        try:
            return dict(self._adapter.validate_python(arguments))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise ToolError(f"The arguments of {self._tool_name} are not valid: {faults}.") from None


def argument_type(
    function: Callable[..., Any], tool_name: str, notes: dict[str, str]
) -> tuple[ArgumentType, str | None]:
    """The type of a function's arguments, and the parameter that takes the `ToolContext`, if there is one."""
    from typing import NotRequired

    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from typing_extensions import TypedDict

    hints, parameters = signature(function, tool_name)
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
        return ArgumentType(TypeAdapter(typed), tool_name), context_parameter
    except PydanticUserError as error:
        raise _no_json_form(tool_name, error) from None


def _no_json_form(tool_name: str, error: PydanticUserError) -> InvalidTool:
    return InvalidTool(
        f"Tool {tool_name!r} has a parameter whose type has no JSON form: {error.message.splitlines()[0]}",
        todo="Use types that pydantic can describe.",
    )


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


def takes_context(parameter: inspect.Parameter) -> bool:
    """Whether this looks like the parameter for the `ToolContext`. The types are not read for it."""
    hint = parameter.annotation
    if isinstance(hint, str):
        return hint.partition("[")[0].split(".")[-1] == ToolContext.__name__
    return hint is ToolContext or get_origin(hint) is ToolContext


def signature(function: Callable[..., Any], tool_name: str) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """The type hints and the parameters of a tool's function. Raises `InvalidTool` when they cannot be read."""
    target: Any = function.func if isinstance(function, functools.partial) else function  # pyright: ignore[reportUnknownMemberType]
    if not (inspect.isroutine(target) or inspect.isfunction(target)):
        target = target.__call__
    try:
        return get_type_hints(target, include_extras=True), list(inspect.signature(function).parameters.values())  # pyright: ignore[reportUnknownArgumentType]
    except (AttributeError, NameError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidTool(
            f"The type hints of tool {tool_name!r} cannot be read: {error}.",
            todo="Import the names it uses at module level, outside TYPE_CHECKING.",
        ) from None


def _default_of(default: Any) -> dict[str, Any]:
    """The default as the schema shows it; nothing for values that are not plain JSON."""
    return {"default": default} if default is None or isinstance(default, str | int | float | bool) else {}


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
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
            argument = re.match(_ARGUMENT, line)
            if argument is not None:
                last = argument.group(1)
                notes[last] = argument.group(2).strip()
            elif last and line.strip():
                notes[last] += f" {line.strip()}"
    return "\n".join(summary).strip(), notes
