"""Packages that an extra of Quiesce brings, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import MissingExtra


def extra(module: str, what: str, name: str) -> Any:
    """Import a module that an extra brings. Raises `MissingExtra`, which names what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
    raise MissingExtra(what, module.partition(".")[0], name)
