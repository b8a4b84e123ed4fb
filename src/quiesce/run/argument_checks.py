"""Checks of what a user gives an agent: what cannot work is a `ConfigurationError` before there is a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from ..errors import ConfigurationError, DuplicateTool
from ..messages import Message
from ..sessions import Conversation, Session, SessionStore, Store
from ..tools.tool import Tool, Toolset


@runtime_checkable
class ToolLike(Protocol):
    """What can be made a tool of: an agent."""

    def as_tool(self) -> Tool:
        """The tool."""
        ...


ToolSource: TypeAlias = "Tool | Toolset | ToolLike | Callable[..., Any]"


def tool_table(tools: Iterable[ToolSource]) -> dict[str, Tool]:
    """The tools by name. Raises `DuplicateTool`, and what a tool without a schema raises."""
    table: dict[str, Tool] = {}
    for each in _each_tool(tools):
        if each.name in table:
            raise DuplicateTool(each.name)
        _ = each.spec  # a tool that has no schema fails here, not in the middle of a run
        table[each.name] = each
    return table


def _each_tool(tools: Iterable[ToolSource]) -> Iterator[Tool]:
    for given in tools:
        if isinstance(given, Tool):
            yield given
        elif isinstance(given, ToolLike):
            yield given.as_tool()
        elif isinstance(given, Toolset):
            yield from given.tools
        else:
            yield Tool(given)


def own_conversation(
    conversation: Conversation | None,
    messages: tuple[Message, ...],
    session: str | Session | None,
    store: Store | SessionStore | str | PathLike[str] | None,
    *,
    wait: float,
    on_store_failure: Literal["stop", "continue"],
) -> Conversation:
    """The conversation of an agent: the one given, a session, or a new one in memory that begins with `messages`.

    Raises `ConfigurationError` for what contradicts itself.
    """
    if session is None and store is None:
        return Conversation(messages) if conversation is None else conversation
    if conversation is not None:
        raise ConfigurationError("Both a conversation and a session.", todo="Use one of them.")
    if session is None:
        raise ConfigurationError("A store without a session.", todo="Name the conversation: session=...")
    if messages:
        raise ConfigurationError("Both messages and a session.", todo="Import the messages into the session first.")
    if isinstance(session, Session):
        if store is not None or wait or on_store_failure != "stop":
            raise ConfigurationError("A Session has its own store and options.", todo="Give them to Session(...).")
        return session
    return Session(session, store, wait=wait, on_store_failure=on_store_failure)


def is_sequential(tool_execution: str) -> bool:
    """Whether tools run one after the other. Raises `ConfigurationError` for what is neither."""
    check_choice("tool_execution", tool_execution, Literal["parallel", "sequential"])
    return tool_execution == "sequential"


def check_choice(name: str, value: str, allowed: Any) -> None:
    """Raises `ConfigurationError` unless the value is one of a `Literal`."""
    if value not in get_args(allowed):
        raise ConfigurationError(f"{name}={value!r}.", todo=f"Use one of: {', '.join(get_args(allowed))}.")


def checked_seconds(timeout: float | None) -> float | None:
    """A timeout that makes sense. Raises `ConfigurationError`."""
    if timeout is not None and not 0 <= timeout < float("inf"):
        raise ConfigurationError(f"timeout={timeout!r} makes no sense.", todo="Use a number of seconds, or None.")
    return timeout
