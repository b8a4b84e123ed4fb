"""The compensation of a tool: the function that `@build.undo` registers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...errors import ConfigurationError, InvalidTool
from ..policy import is_number

DEFAULT_UNDO_TIMEOUT: Final = 30.0

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Compensation:
    """The function that undoes a call, with its timeout.

    It takes any of the tool's arguments by name, and the tool's return value as `result`. `arguments` are their names
    with the tool's defaults, for arguments that a call left out.
    """

    def __init__(
        self, function: Callable[..., Any], *, tool_name: str, arguments: Mapping[str, Any], timeout: float
    ) -> None:
        if not (is_number(timeout) and 0 < timeout < float("inf")):
            raise ConfigurationError(f"An undo timeout of {timeout!r} makes no sense.", todo="Use a number of seconds.")
        if not callable(function):
            raise InvalidTool(f"{function!r} cannot undo tool {tool_name!r}.", todo="Give a function.")
        parameters = inspect.signature(function).parameters.values()
        self.function: Final = function
        self.timeout: Final = timeout
        self.is_async: Final = _is_async(function)
        self._defaults: Final = {
            name: value for name, value in arguments.items() if value is not inspect.Parameter.empty
        }
        self._takes_all: Final = any(each.kind is each.VAR_KEYWORD for each in parameters)
        self._names: Final = frozenset(each.name for each in parameters if each.kind in _NAMED)
        for each in parameters:
            known = each.name in arguments or each.name == "result" or each.default is not each.empty
            if (each.kind in _NAMED and not known) or each.kind is each.POSITIONAL_ONLY:
                raise InvalidTool(
                    f"The undo of tool {tool_name!r} wants {each.name!r}, which is none of the tool's arguments.",
                    todo="It may take the tool's own arguments by name, and what the tool returned as 'result'.",
                )

    @property
    def takes_result(self) -> bool:
        """Whether the function takes the tool's return value."""
        return self._takes_all or "result" in self._names

    def bind(self, arguments: dict[str, Any], result: Any) -> dict[str, Any]:
        """The arguments for the function."""
        offered = {**self._defaults, **arguments, "result": result}
        return offered if self._takes_all else {name: offered[name] for name in offered if name in self._names}


def _is_async(function: Callable[..., Any]) -> bool:
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    target: Any = function if plain else function.__call__  # pyright: ignore[reportUnknownVariableType]
    return inspect.iscoroutinefunction(target)
