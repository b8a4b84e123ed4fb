"""Values from the process of a tool, in a form that is safe to read: JSON, with tags for what JSON does not have.

A pickle may run any code where it is read, and the process of a tool may run code that a model wrote. So nothing that
comes from there is unpickled. A dataclass, a struct, a named tuple or a pydantic model is rebuilt from its fields, when
its class is imported already; a dataclass is not called for that, and a pydantic model validates them.

This module is imported by workers, which import little.
"""

from __future__ import annotations

import base64
import enum
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

# The key that marks what JSON does not have. A dict with such a key of its own is written as pairs.
_TAG: Final = "~"
_BIGGEST: Final = 1 << 53


class NotPlain(TypeError):
    """A value that cannot be sent to the host."""


# --- In the process of the tool ---------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """A value as JSON has it. Raises `NotPlain`, and `RecursionError` for one that is nested too deeply."""
    kind = cast("Any", type(value))
    if value is None or kind in (str, bool):
        return value
    if kind is int:
        return value if -_BIGGEST < value < _BIGGEST else {_TAG: "int", "value": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "value": repr(value)}
    if kind is list:
        return [to_plain(each) for each in value]
    if kind is dict:
        if _TAG not in value and all(type(key) is str for key in value):
            return {key: to_plain(each) for key, each in value.items()}
        return {_TAG: "dict", "value": [[to_plain(key), to_plain(each)] for key, each in value.items()]}
    if kind in (tuple, set, frozenset):
        return {_TAG: kind.__name__, "value": [to_plain(each) for each in value]}
    if kind in (bytes, bytearray):
        return {_TAG: kind.__name__, "value": base64.b64encode(value).decode("ascii")}
    return _other(value, kind)


def _other(value: Any, kind: Any) -> Any:
    if isinstance(value, enum.Enum):
        return {_TAG: "enum", **_class_name(kind), "value": value.name}
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _FROM_TEXT:
        return {_TAG: name, "value": _TO_TEXT.get(name, str)(value)}
    text = array_text(value)
    if text is not None:
        return text
    fields = _fields(value, kind)
    if fields is None:
        raise NotPlain(f"a {kind.__name__} is not plain data: return text, numbers, lists, dicts or a dataclass")
    return {_TAG: "object", **_class_name(kind), "value": {name: to_plain(each) for name, each in fields.items()}}


def array_text(value: Any) -> str | None:
    """An array or a table (numpy, pandas, polars) as text: shape, types and first rows; None for anything else."""
    shape: Any = getattr(value, "shape", None)
    types: Any = getattr(value, "dtypes", getattr(value, "dtype", None))
    if not isinstance(shape, tuple) or types is None:
        return None
    if not shape:
        return str(value.item())
    first = value.head(_ROWS) if hasattr(value, "head") else value[:_ROWS]
    columns: Any = getattr(value, "columns", None)
    if columns is not None:
        types = ", ".join(f"{name}: {each}" for name, each in zip(columns, types, strict=True))
    more = f", the first {_ROWS} rows" if shape[0] > _ROWS else ""
    return f"{type(value).__name__} of shape {shape} ({types}){more}:\n{first}"  # pyright: ignore[reportUnknownVariableType]


# The rows of an array or a table that a model is shown.
_ROWS: Final = 20


def _class_name(kind: type) -> dict[str, str]:
    return {"module": kind.__module__, "name": kind.__qualname__}


def _fields(value: Any, kind: Any) -> Mapping[str, Any] | None:
    """The fields of a struct, a named tuple, a pydantic model or a dataclass; None for any other object."""
    names: Any = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None)
    if names is not None and (tuple in kind.__mro__ or hasattr(kind, "__struct_fields__")):
        return {name: getattr(value, name) for name in names}
    if hasattr(kind, "__pydantic_fields__"):
        return dict(value.__dict__)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__ if hasattr(value, name)}
    return None


def error_to_plain(error: BaseException) -> Any:
    """An exception: its class, its arguments and its fields. Those that cannot be sent are left out."""
    try:
        file = getattr(error, "filename", None) if isinstance(error, OSError) else None
        arguments: Any = to_plain([*error.args] if file is None else [*error.args, file])
        fields: Any = to_plain(dict(error.__dict__))
    except (NotPlain, RecursionError):
        arguments, fields = [str(error)], {}
    return {**_class_name(type(error)), "arguments": arguments, "fields": fields}


# --- In the host ------------------------------------------------------------------------------------------------------


def from_plain(plain: Any) -> Any:
    """The value. Raises `NotPlain` or `ValueError` for what no honest worker sends."""
    if isinstance(plain, list):
        return [from_plain(each) for each in plain]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(plain, dict):
        return plain
    tag = plain.get(_TAG)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if tag is None:
        return {key: from_plain(each) for key, each in plain.items()}  # pyright: ignore[reportUnknownVariableType]
    return _tagged(tag, plain)  # pyright: ignore[reportUnknownArgumentType]


def _tagged(tag: Any, plain: dict[str, Any]) -> Any:
    value = plain.get("value")
    match tag:
        case "dict":
            return {from_plain(key): from_plain(each) for key, each in value or ()}
        case "int":
            return int(str(value), 16)
        case "enum":
            found = loaded_class(plain)
            if not issubclass(found, enum.Enum):
                raise NotPlain(f"{found.__name__} is no enumeration")
            return found[str(value)]
        case "object":
            return _rebuilt(
                loaded_class(plain), {str(name): from_plain(each) for name, each in dict(value or {}).items()}
            )
        case str() if tag in _FROM_TEXT:
            return _FROM_TEXT[tag](value)
        case _:
            raise NotPlain(f"{tag!r} is no kind of value")


def loaded_class(plain: Mapping[str, Any]) -> type:
    """The class that a value names, if it is imported here already. Nothing is imported for it. Raises `NotPlain`."""
    module, name = str(plain.get("module")), str(plain.get("name"))
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise NotPlain(f"the class {module}.{name} is not known here")
    return found


def _rebuilt(kind: Any, fields: dict[str, Any]) -> Any:
    """An object from its fields."""
    if hasattr(kind, "__pydantic_fields__"):
        return kind.model_validate(fields)
    names: Any = getattr(kind, "__struct_fields__", None)
    if names is not None:
        return kind(**fields)
    if tuple in kind.__mro__:
        return kind._make([fields[name] for name in kind._fields])
    if not hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__del__"):
        raise NotPlain(f"a {kind.__name__} is no plain data")
    made: Any = object.__new__(kind)
    for name, each in fields.items():
        object.__setattr__(made, name, each)
    return made


def error_from_plain(plain: Mapping[str, Any]) -> BaseException | None:
    """The exception, without a call of its class; None when that is not known here."""
    try:
        kind = loaded_class(plain)
        if not issubclass(kind, BaseException):
            return None
        builtin = next(each for each in kind.__mro__ if each.__module__ == "builtins")
        arguments = from_plain(plain.get("arguments") or [])
        error: BaseException = builtin.__new__(kind, *arguments)
        builtin.__init__(error, *arguments)
        error.__dict__.update(from_plain(plain.get("fields") or {}))
    except Exception:  # whatever a class of the user's own makes of it: the line that describes it is shown instead
        return None
    return error


def _later(module: str, name: str, method: str = "") -> Callable[[Any], Any]:
    """A class, or a method of it, of a module that is imported when the first such value comes."""

    def make(value: Any) -> Any:
        found = getattr(__import__(module), name)
        return (getattr(found, method) if method else found)(value)

    return make


_FROM_TEXT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float": float,
    "tuple": lambda items: tuple(from_plain(items)),
    "set": lambda items: set(from_plain(items)),
    "frozenset": lambda items: frozenset(from_plain(items)),
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "builtins.complex": complex,
    "datetime.datetime": _later("datetime", "datetime", "fromisoformat"),
    "datetime.date": _later("datetime", "date", "fromisoformat"),
    "datetime.time": _later("datetime", "time", "fromisoformat"),
    "datetime.timedelta": lambda parts: __import__("datetime").timedelta(*parts),
    "decimal.Decimal": _later("decimal", "Decimal"),
    "uuid.UUID": _later("uuid", "UUID"),
    "pathlib.PosixPath": _later("pathlib", "Path"),
    "pathlib.WindowsPath": _later("pathlib", "Path"),
    "pathlib.PurePosixPath": _later("pathlib", "PurePosixPath"),
}
_TO_TEXT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "datetime.datetime": lambda value: value.isoformat(),
    "datetime.date": lambda value: value.isoformat(),
    "datetime.time": lambda value: value.isoformat(),
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
    "uuid.UUID": lambda value: value.hex,
}
