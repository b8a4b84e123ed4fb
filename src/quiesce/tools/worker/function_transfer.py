"""How a function gets into another process: the part that both sides need.

A function of an importable module goes by its name, with the file that it came from, for modules that only their file
leads to (plugins, some test runners). Any other (of `__main__`, of a notebook, inside another function) goes by value,
see `function_pickler`. The user's `__main__` is never run a second time.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from ...processes.loaded_types import is_a


class TransferredFunction(NamedTuple):
    """A function as it travels, by its name or, with a `body`, by value. `key` is the same for the same content."""

    key: str
    module: str = ""
    qualname: str = ""
    origins: tuple[tuple[str, str], ...] = ()
    """The modules that have to be imported first, each with its file."""
    body: bytes = b""


def unpack(transferred: TransferredFunction) -> Callable[..., Any]:
    """The function again. Raises what importing its module raises."""
    import_modules(transferred.origins)
    return pickle.loads(transferred.body) if transferred.body else named(transferred.module, transferred.qualname)


def named(module: str, qualname: str) -> Any:
    """Import a function by its name. When `@tool` has made the name a `Tool`, this is the function inside it."""
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return bare(found)


def bare(found: Any) -> Any:
    """The function of a tool; anything else as it is."""
    return found.function if is_a(found, "quiesce.tools.tool", "Tool") else found


def set_state(function: FunctionType, state: tuple[Callable[..., None], Any, dict[str, Any]]) -> None:
    """Complete a function that goes by value: its own state, and globals that only the body of a class in it uses."""
    set_own, own, more_globals = state
    set_own(function, own)
    function.__globals__.update(more_globals)


def import_modules(origins: tuple[tuple[str, str], ...]) -> None:
    """Import each module by its name, or from its file where its name is not importable."""
    for module, origin in origins:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not origin or error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # it was found; something that it needs is missing
            _import_from_file(module, origin)


def _import_from_file(module: str, origin: str) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(module, origin)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    sys.modules[module] = made = module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[module]
        raise
