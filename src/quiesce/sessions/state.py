"""The state of a session: what tools keep between runs, saved as JSON with the messages of the same turn."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Any, Final

import msgspec

from .._exact import encodes

STATE: Final = "conversation.state"


def read_state(stored: bytes | None) -> dict[str, Any] | None:
    """A stored state; None when there is none, or when it is damaged."""
    with suppress(msgspec.MsgspecError, UnicodeError):
        return None if stored is None else msgspec.json.decode(stored, type=dict[str, Any])
    return None


def unsavable(value: Any, path: str = "state") -> str | None:
    """Where in the state a value stands that has no JSON form, such as `state['db']`; None when everything has one."""
    match value:
        case float():
            return None if isfinite(value) else path
        case str():
            return None if encodes(value) else path
        case None | bool() | int():
            return None
        case dict():
            for key, each in value.items():  # pyright: ignore[reportUnknownVariableType]
                found = unsavable(each, f"{path}[{key!r}]") if isinstance(key, str) else f"the key {key!r} of {path}"
                if found is not None:
                    return found
            return None
        case list() | tuple():
            found = (unsavable(each, f"{path}[{number}]") for number, each in enumerate(value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return next((each for each in found if each is not None), None)
        case _:
            return path
