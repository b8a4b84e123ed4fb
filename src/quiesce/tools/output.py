"""Tool results for the model, made from what a tool returned or raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from .._exact import exact
from ..conversation.answer import well_formed
from ..errors import public_text
from ..messages import Document, Image, Outcome, ResultContent, Text, ToolCall, ToolResult
from ..processes.plain_values import array_text
from .tool_return import ToolReturn

_NOTHING: Final = "(no output)"


def completed_result(call: ToolCall, value: Any) -> ToolResult:
    """The result of a tool that returned. A value that cannot be sent to a model becomes an error that says so."""
    try:
        if isinstance(value, ToolReturn):
            value = value.content
        if isinstance(value, ToolResult):  # the tool itself says what the outcome is
            content = tuple(part for each in value.content for part in _content(each))
            structured = well_formed_value(value.structured_content)
            content = content or (Text(_NOTHING),)
            return replace(value, call_id=call.id, name=call.name, content=content, structured_content=structured)
        return ToolResult(call.id, call.name, _content(value))
    except Exception as error:
        what = f"The tool finished, but what it returned cannot be sent ({type(value).__name__}: {_brief(error)})."
        return failed_result(call, what)


def as_result_of(call: ToolCall, result: ToolResult) -> ToolResult:
    """A result from a hook, as the result of exactly this call, in a form that every provider accepts."""
    checked = completed_result(call, result)
    if checked.is_error:
        return checked
    return replace(checked, outcome=result.outcome, is_error=result.is_error)


def failed_result(call: ToolCall, message: str) -> ToolResult:
    """The result of a tool that raised, or of a call that could not be made."""
    return ToolResult(call.id, call.name, (Text(well_formed(message) or "Error."),), Outcome.COMPLETED, is_error=True)


def with_changed_arguments(result: ToolResult, changed: dict[str, Any] | None) -> ToolResult:
    """The result, with a note for the model if a person changed the arguments that it had written."""
    if changed is None or result.outcome is not Outcome.COMPLETED:
        return result
    note = Text(f"(A person changed the arguments to {as_json(changed)}.)")
    return replace(result, content=(note, *result.content))


def describe_error(error: BaseException) -> str:
    """An exception in one line, for the model."""
    text = public_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _brief(error: Exception) -> str:
    return describe_error(error).splitlines()[0][:200]


def _content(value: Any) -> tuple[ResultContent, ...]:
    match value:
        case str():
            return (_text(value),)
        case Text() | Image() | Document():
            return (_text(value.text) if isinstance(value, Text) else _attachment(value),)
        case list() | tuple() if _is_content(value):  # pyright: ignore[reportUnknownArgumentType]
            return tuple(part for each in value for part in _content(each))  # pyright: ignore[reportUnknownVariableType]
        case None:
            return (Text(_NOTHING),)
        case _:
            return (_text(array_text(value) or as_json(value, fallback=_nested)),)


def _nested(value: Any) -> str:
    """An array or a table inside another value."""
    text = array_text(value)
    if text is None:
        raise TypeError(f"Unable to serialize unknown type: {type(value)}")
    return text


def _is_content(parts: Sequence[Any]) -> bool:
    return bool(parts) and all(isinstance(part, Text | Image | Document) for part in parts)


def _attachment(value: Image | Document) -> Image | Document:
    if not value.data and not value.url and not value.file_id:
        raise ValueError("an attachment with neither data nor url nor file_id")
    return exact(value, type(value))


def _text(text: str) -> Text:
    return Text(well_formed(text)) if text.strip() else Text(_NOTHING)


def as_json(value: Any, *, fallback: Callable[[Any], Any] | None = None) -> str:
    """A value as JSON text; `fallback` makes something of what JSON does not have."""
    from pydantic_core import to_json

    return to_json(value, fallback=fallback).decode()


def well_formed_value(value: Any) -> Any:
    """A JSON value whose texts can be stored and sent: a file name may hold half a character."""
    match value:
        case str():
            return well_formed(value)
        case list():
            return [well_formed_value(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {well_formed_value(name): well_formed_value(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return value
