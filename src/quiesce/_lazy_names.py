"""Names that a package offers and that are imported when they are first used.

The names stand once, in the package's `__init__.pyi`, where type checkers look for them too. A tool's worker process,
or a program that needs only one of them, does not import the rest; so this module imports next to nothing either.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def lazy_names(package: str, space: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose globals are `space`."""
    module_of = _names_in(f"{space['__file__'].removesuffix('.py')}.pyi")

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = space[name] = getattr(importlib.import_module(module, package), name)  # found at once from now on
        return value

    return get, lambda: sorted({*space, *module_of}), sorted(module_of)


def _names_in(stub: str) -> dict[str, str]:
    """The module of each name, from lines such as `from .agent import Agent as Agent`."""
    with open(stub, encoding="utf-8") as lines:
        words = [line.split() for line in lines if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in words}
