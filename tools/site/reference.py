"""What is public, and the pages of the API reference: one for each module, with every public name once.

A name that can be imported from `quiesce` is described there; the page of its module links to it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any, Final, TypeVar

from quiesce import Tool

# The public modules, in the order of the reference, with what a reader looks for in them. Provider modules follow.
MODULES: Final = {
    "quiesce": "what an everyday program imports",
    "quiesce.events": "what a run reports while it happens",
    "quiesce.messages": "what a conversation consists of",
    "quiesce.errors": "every exception",
    "quiesce.hooks": "callbacks around each step",
    "quiesce.middleware": "code that changes model calls and tool calls",
    "quiesce.interrupts": "approvals and questions",
    "quiesce.cancellation": "tokens, causes, modes, signals",
    "quiesce.receipt": "what a stop did",
    "quiesce.result": "what a run returns",
    "quiesce.usage": "tokens, costs and their intervals",
    "quiesce.sessions": "conversations that are saved",
    "quiesce.sessions.stores.sqlite": "sessions in a file",
    "quiesce.sessions.stores.postgres": "sessions in Postgres",
    "quiesce.tools.builtin": "tools that are ready to use",
    "quiesce.mcp": "tools from MCP servers",
    "quiesce.protocols.mcp_server": "an agent as an MCP server",
    "quiesce.models.base": "the protocol of a model",
    "quiesce.models.scripted": "a model that follows a script",
    "quiesce.server": "agents over HTTP",
    "quiesce.client": "a server from Python",
    "quiesce.server.schemas": "what the methods of the client return, and the JSON of the HTTP interface",
    "quiesce.fleet.temporal": "runs as workflows of Temporal",
    "quiesce.telemetry": "OpenTelemetry spans",
    "quiesce.testing": "agents, tools and stops in your own tests",
    "quiesce.processes.environment": "what a program that a tool starts gets of the environment",
}
_PROVIDERS: Final = "quiesce.models.providers"
# Modules of which only the types are public.
_TYPES_ALONE: Final = {"quiesce.server.schemas"}


def modules() -> dict[str, str]:
    """All public modules with what is in them: those above, other packages with an `__all__`, and the providers."""
    packages = {name: _plain(_doc(name)) for name in _inside("quiesce") if _has_names(name)}
    providers = {name: _plain(_doc(name)) for name in _inside(_PROVIDERS) if not name.endswith("_server")}
    return {**MODULES, **{name: text for name, text in packages.items() if name not in MODULES}, **providers}


def _inside(package: str) -> list[str]:
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(f"{package}.{each.name}" for each in found if not each.name.startswith("_"))


def _has_names(module: str) -> bool:
    return module != "quiesce.cli" and hasattr(importlib.import_module(module), "__all__")


def _doc(module: str) -> str:
    return inspect.getdoc(importlib.import_module(module)) or ""


def public_names(module: str) -> list[str]:
    """The public names of a module: its `__all__`, or what it defines itself without an underscore."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return sorted(name for name in loaded.__all__ if not (name.startswith("_") or _is_type_variable(loaded, name)))
    return sorted(
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and _is_described(value) and getattr(value, "__module__", None) == module
        if inspect.isclass(value) or module not in _TYPES_ALONE
    )


def _is_described(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _is_type_variable(module: ModuleType, name: str) -> bool:
    return isinstance(getattr(module, name), TypeVar)


def home_of(module: str, name: str) -> str:
    """The full name under which an object is described: that in `quiesce` if it has one."""
    package = importlib.import_module("quiesce")
    value = getattr(importlib.import_module(module), name)
    if name in package.__all__ and getattr(package, name) is value:
        return f"quiesce.{name}"
    for other in MODULES:  # the first module of the reference that has it
        if name in public_names(other) and getattr(importlib.import_module(other), name, None) is value:
            return f"{other}.{name}"
    return f"{module}.{name}"


def page(module: str) -> str:
    """The page of a module, as reStructuredText."""
    loaded = importlib.import_module(module)
    lines = [module, "=" * len(module), "", f".. module:: {module}", "", f".. currentmodule:: {module}", ""]
    lines += [_first_paragraph(loaded), ""]
    elsewhere = []
    for name in public_names(module):
        home = home_of(module, name)
        if home == f"{module}.{name}":
            lines += [*_description(module, name, getattr(loaded, name)), ""]
        else:
            elsewhere.append(f":py:obj:`{name} <{home}>`")
    if elsewhere:
        lines += ["Described elsewhere: " + ", ".join(elsewhere) + ".", ""]
    return "\n".join(lines)


def _first_paragraph(module: ModuleType) -> str:
    return _plain(_doc(module.__name__))


def _plain(text: str) -> str:
    """The first paragraph of a text, with names in backticks."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).replace("`", "``").replace("*", "\\*")


def _description(module: str, name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return [f".. autoclass:: {module}.{name}", "   :members:", "   :undoc-members:", "   :show-inheritance:"]
    if inspect.isroutine(value):
        return [f".. autofunction:: {module}.{name}"]
    if isinstance(value, Tool):
        return [f".. py:data:: {name}", "   :type: Tool", "", f"   {_plain(value.description)}"]
    shown = " ".join(repr(value).split())
    return [f".. py:data:: {name}", *([f"   :value: {shown}"] if len(shown) < 100 else [])]


def contents() -> str:
    """The first page of the reference."""
    rows = "\n".join(f"   * - :doc:`{module}`\n     - {text}" for module, text in modules().items())
    pages = "\n".join(f"   {module}" for module in modules())
    return f"""API reference
=============

Every public name, from its docstring. What is not here is not public: see :doc:`/versions`.

.. list-table::
   :widths: 40 60

{rows}

.. toctree::
   :hidden:

{pages}
"""
