"""Loads an agent by name: `package.module:attribute`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from ..agent import Agent
from ..errors import ConfigurationError


def load_agent(target: str) -> Agent:
    """The agent that `module:attribute` names; a function without parameters is called for one.

    The working directory is searched first. Raises `ConfigurationError` when there is no such agent.
    """
    module_name, _, attribute = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = import_module(module_name)
        for name in (attribute or "agent").split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{target!r} cannot be loaded: {error}.", todo="Name an agent as package.module:attribute."
        ) from error
    if callable(found) and not isinstance(found, Agent):
        found = found()
    if not isinstance(found, Agent):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not an Agent.")
    return found  # pyright: ignore[reportUnknownVariableType]
