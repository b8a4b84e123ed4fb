#!/usr/bin/env python3
"""Counts the public functions and fields whose signature or result still contains `Any`, each with its reason.

Public is what `quiesce` exports: its functions, and the methods, properties and fields of its classes. An overloaded
function counts by its overloads. A generic class without parameters contains what these are by default. It exits with 1
when one has no reason below, or when a reason is no longer needed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Iterator
from typing import Any, Final

import quiesce

JSON: Final = "a value that a model, a person or a store gives: only the caller knows its shape"
STATE: Final = "state is a dict of JSON values that the user's own code chooses"
SETTINGS: Final = "a provider's own settings: their names and types are the provider's"
FUNCTION: Final = "takes any function: a schema is made of its parameters at run time"
OTHERS: Final = "runs and results of other agents, whose output types differ"
PARAMETERS: Final = "any tool, agent or context: its type parameters do not matter here"

HOOKS: Final = "a hook is registered for agents of any kind, so it sees deps and state of any type"
SHARED: Final = "one object may serve agents with different deps"
RESULT: Final = "what a tool returns can be anything that a result can be made of"

REASONS: Final[dict[str, str]] = {
    **{
        f"{event}.{member}": HOOKS
        for event in (
            *("HookEvent", "BeforeRun", "AfterRun", "BeforeModelCall", "AfterModelCall", "BeforeToolCall"),
            *("BeforeApproval", "AfterToolCall", "OnMessage", "OnStop", "OnLateOutcome"),
        )
        for member in ("__init__", "deps", "state")
    },
    **{f"{name}.model_call": SHARED for name in ("CachePrompt", "ConcurrencyLimit", "FallbackModels", "RateLimit")},
    **{
        f"{name}.tool_call": RESULT
        for name in (
            *("CachePrompt", "ConcurrencyLimit", "FallbackModels", "RateLimit"),
            *("InputGuardrail", "OutputGuardrail", "Middleware"),
        )
    },
    "AfterToolCall.replace": RESULT,
    "BeforeToolCall.interrupt": JSON,
    "BeforeToolCall.replace": RESULT,
    "Conversation.replace_state": STATE,
    "Limits.of": "numbers of different kinds: counts are whole, money is decimal",
    "MCPServer.http": "options of the MCP client, passed on",
    "MCPServer.stdio": "options of the MCP client, passed on",
    "MCPServer.wait_for": "the caller's own awaitable",
    "ReasoningDelta.provider_data": JSON,
    "RunOptions.middleware": SHARED,
    "Session.replace_state": STATE,
    "ToolReturn.content": RESULT,
    "ToolReturn.data": "only the tool and its undo know what it is",
    "ToolCallRequest.arguments": JSON,
    "ToolCallRequest.replace": JSON,
    "ToolCallRequest.tool": PARAMETERS,
    "ToolProgress.progress": JSON,
    "Agent.__init__": f"state=, settings= and tools=: {STATE}; {SETTINGS}; {FUNCTION}",
    "Agent.active_runs": OTHERS,
    "Agent.add_tools": FUNCTION,
    "Agent.as_tool": PARAMETERS,
    "Agent.cancel": OTHERS,
    "Agent.state": STATE,
    "Agent.tools": PARAMETERS,
    "Approval.reason": JSON,
    "Approve.arguments": JSON,
    "Conversation.begin_state": STATE,
    "Conversation.state": STATE,
    "Conversation.take_pending": JSON,
    "Interrupt.arguments": JSON,
    "Interrupt.reason": JSON,
    "Run.__await__": "what an awaitable yields to its loop is the loop's own",
    "Run.children": OTHERS,
    "RunContext.__init__": STATE,
    "RunContext.fields": STATE,
    "RunContext.begun": STATE,
    "RunOptions.settings": SETTINGS,
    "RunOptions.tools": FUNCTION,
    "RunOptions.within": PARAMETERS,
    "RunResult.children": OTHERS,
    "Session.begin_state": STATE,
    "Session.state": STATE,
    "Session.take_pending": JSON,
    "Text.provider_data": JSON,
    "Tool.deps_type": "a type of the user's own, which may be a union or a protocol",
    "Tool.defaults": "the defaults of a function of the user's own",
    "Tool.preview_text": JSON,
    "Tool.sequence_key": JSON,
    "Tool.validate": JSON,
    "ToolContext.__init__": STATE,
    "ToolContext.answers": JSON,
    "ToolContext.interrupt": JSON,
    "ToolContext.kept": JSON,
    "ToolContext.fields": STATE,
    "ToolContext.begun": STATE,
    "handoff": PARAMETERS,
}


def public() -> Iterator[tuple[str, Any, Any]]:
    """Each public function, method, property and field: its name, the annotation or function, and its namespace."""
    for name in sorted(quiesce.__all__):
        value = getattr(quiesce, name)
        if inspect.isclass(value):
            yield from _members(name, value)
        elif callable(value):
            yield name, value, value.__globals__


def _members(name: str, kind: type) -> Iterator[tuple[str, Any, Any]]:
    seen: set[str] = set()
    for each in kind.__mro__:
        if not each.__module__.startswith("quiesce"):
            continue
        namespace = vars(sys.modules[each.__module__])
        for member, value in vars(each).items():
            is_public = not member.startswith("_") or member in ("__init__", "__call__", "__await__", "__aiter__")
            function = _function(value)
            if is_public and member not in seen and function is not None:
                seen.add(member)
                yield f"{name}.{member}", function, namespace
        for member, annotation in inspect.get_annotations(each).items():
            if not member.startswith("_") and member not in seen:
                seen.add(member)
                yield f"{name}.{member}", annotation, namespace


def _function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func  # pyright: ignore[reportUnknownMemberType]
    if isinstance(value, staticmethod | classmethod):
        return value.__func__  # pyright: ignore[reportUnknownMemberType]
    return value if inspect.isfunction(value) else None


def has_any(subject: Any, namespace: dict[str, Any]) -> bool:
    """Whether a function's signature, or an annotation, contains `Any`."""
    if not inspect.isfunction(subject):
        return _annotation_has_any(subject, namespace)
    signatures = typing.get_overloads(subject) or [subject]
    return any(
        _annotation_has_any(annotation, namespace)
        for signature in signatures
        for name, annotation in signature.__annotations__.items()
        if name != "self"
    )


def _annotation_has_any(annotation: Any, namespace: dict[str, Any]) -> bool:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return _value_has_any(annotation, bare=True)
    parameterised: set[ast.AST] = set()
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Subscript):
            parameterised.add(node.value)
        if isinstance(node, ast.Name):
            value = namespace.get(node.id)
            if node.id == "Any" or (value is not None and _value_has_any(value, bare=node not in parameterised)):
                return True
    return False


def _value_has_any(value: Any, *, bare: bool) -> bool:
    """Whether an alias contains `Any`, or a generic class stands without its parameters."""
    if value is Any:
        return True
    if isinstance(value, typing.ForwardRef | str):
        text = value.__forward_arg__ if isinstance(value, typing.ForwardRef) else value
        return "Any" in text
    if inspect.isclass(value):
        names = {parameter.__name__ for parameter in getattr(value, "__parameters__", ())}
        return bare and value.__module__.startswith("quiesce") and value.__name__ != "Agent" and bool(names)
    parts = value if isinstance(value, list) else typing.get_args(value)  # the parameters of a Callable are a list
    return any(_value_has_any(each, bare=True) for each in parts)  # pyright: ignore[reportUnknownVariableType]


def found() -> list[str]:
    """The names of everything public whose types contain `Any`."""
    return [name for name, subject, namespace in public() if has_any(subject, namespace)]


def main() -> int:
    """Print each with its reason, and their number."""
    names, total = found(), sum(1 for _ in public())
    for name in names:
        print(f"{name:40} {REASONS.get(name, 'NO REASON')}")
    print(f"{len(names)} of {total} public functions and fields contain Any")
    unexplained = [name for name in names if name not in REASONS]
    outdated = sorted(REASONS.keys() - set(names))
    for name in unexplained:
        print(f"{name} has no reason in {__file__}: type it, or say why not.")
    for name in outdated:
        print(f"{name} needs no reason any more: take it out of {__file__}.")
    return 1 if unexplained or outdated else 0


if __name__ == "__main__":
    sys.exit(main())
