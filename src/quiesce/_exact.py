"""Values of exactly the built-in types, so that what a store writes is what was sent.

A `str` that is an instance of a subclass, or an enum member among the arguments of a call, is something else to an
encoder. Such values become plain ones where they enter a conversation.
"""

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class NotJSON(ValueError):
    """A value that cannot be written as JSON and read back as it was."""


def exact_text(text: str) -> str:
    """The text itself, whatever `__str__` a subclass has."""
    return str.__str__(text)


def base_value(value: object) -> str | int | float | bytes | None:
    """An instance of a subclass of a scalar type as that type; None for any other value."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes.__bytes__(value)
        case _:
            return None


def exact(value: object, kind: type[T] | Any) -> T:
    """A value of the type `kind`, made of built-in types only. Raises `NotJSON` when there is no such value."""
    try:
        return msgspec.convert(_plain(value), kind, builtin_types=(bytes,))
    except NotJSON:
        raise
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotJSON(str(error)) from None


def _plain(value: Any) -> Any:
    """The value as JSON has it, with bytes as they are. Raises `NotJSON` for what JSON cannot express."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value)
        case str() | int() | float() | bytes():
            return _scalar(value)
        case dict():
            return {_key(key): _plain(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case Struct():
            config = value.__struct_config__
            tag = {} if config.tag is None else {config.tag_field: config.tag}
            return tag | {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return _plain(msgspec.to_builtins(value))


def _scalar(value: str | float | bytes) -> Any:
    plain = base_value(value)
    if isinstance(plain, str) and not encodes(plain):
        raise NotJSON("text that cannot be encoded")
    if isinstance(plain, float) and not isfinite(plain):
        raise NotJSON(f"{plain} is not a number that JSON has")
    return plain


def _key(key: Any) -> str:
    plain = _plain(key)
    if isinstance(plain, int) and not isinstance(plain, bool):
        return str(plain)
    if not isinstance(plain, str):
        raise NotJSON(f"{key!r} is no key that JSON has")
    return plain


def encodes(text: str) -> bool:
    """Whether a text can be sent: it has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
