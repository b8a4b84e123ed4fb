"""Checks of what a user gives an agent: what cannot work is a `ConfigurationError` before there is a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from .._exact import exact_text
from .._threads.seconds import checked_seconds
from ..compaction import Context
from ..conversation.conversation import Conversation
from ..errors import ConfigurationError, DuplicateTool, InvalidTool
from ..limits import Limits, OnLimit
from ..models.base import Model
from ..models.server_tools import SERVER_TOOLS, ServerTool
from ..retry import Retry
from ..tools.tool import Tool, Toolset
from ..usage.estimate.calibration import Calibration
from ..usage.stop_policy import RequestStopPolicy
from .output import is_type

if TYPE_CHECKING:
    from ..sessions import Session


@runtime_checkable
class ToolLike(Protocol):
    """What can be made a tool of: an agent."""

    def as_tool(self) -> Tool:
        """The tool."""
        ...


ToolSource: TypeAlias = "Tool | Toolset | ToolLike | ServerTool | Callable[..., Any]"


def tool_list(tools: Iterable[ToolSource]) -> tuple[ToolSource, ...]:
    """What was given as tools. Raises `ConfigurationError` for what is no list."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"tools={tools!r} makes no sense.", todo="Use a list of tools.")
    return tuple(tools)


def tool_table(tools: Iterable[ToolSource], deps_type: Any = None) -> dict[str, Tool]:
    """The tools by name. Raises `DuplicateTool`, and `InvalidTool` for one that has no schema or needs other deps."""
    table: dict[str, Tool] = {}
    for each in _each_tool(tools):
        if each.name in table:
            raise DuplicateTool(each.name)
        _ = each.spec  # a tool that has no schema fails here, not in the middle of a run
        _check_tool_deps(each, deps_type)
        table[each.name] = each
    return table


def checked_server_tools(tools: Iterable[ToolSource], model: Model) -> tuple[ServerTool, ...]:
    """The tools that the provider runs itself. Raises `ConfigurationError` for one that the model's does not have."""
    found = tuple(each for each in tools if isinstance(each, SERVER_TOOLS))
    convert = getattr(model, "server_tools", None)
    if convert is not None:  # a model of the user's own finds them in the request
        convert(found)
    return found


def _check_tool_deps(tool: Tool, deps_type: Any) -> None:
    wanted = tool.deps_type
    if (
        not isinstance(wanted, type)
        or wanted is type(None)
        or (deps_type is not None and not isinstance(deps_type, type))
    ):
        return
    if deps_type is None or not issubclass(deps_type, wanted):
        has = "the agent has no deps_type" if deps_type is None else f"the agent has {deps_type.__name__}"
        raise InvalidTool(
            f"Tool {tool.name!r} needs deps of type {wanted.__name__}, and {has}.",
            todo=f"Use Agent(..., deps_type={wanted.__name__}).",
        )


def _each_tool(tools: Iterable[ToolSource]) -> Iterator[Tool]:
    for given in tools:
        if isinstance(given, SERVER_TOOLS):
            continue
        if isinstance(given, Tool):
            yield given
        elif isinstance(given, ToolLike):
            yield given.as_tool()
        elif isinstance(given, Toolset):
            yield from given.tools
        else:
            yield Tool(given)


def own_conversation(conversation: Conversation | None, session: str | Session | None, store: object) -> Conversation:
    """The conversation that an agent keeps for itself. Raises `ConfigurationError` for what contradicts itself."""
    check_instance("conversation", conversation, Conversation, "a Conversation or a Session")
    if store is None and session is None:
        return Conversation() if conversation is None else conversation
    from . import session_checks  # with them come the stores

    session_checks.check_store(store)
    session_checks.check_session(session)
    if session is None:
        return Conversation() if conversation is None else conversation
    if conversation is not None:
        raise ConfigurationError("Both a conversation and a session.", todo="Use one of them.")
    return session_checks.shared_session(session, store)


def is_sequential(tool_execution: str) -> bool:
    """Whether tools run one after the other. Raises `ConfigurationError` for what is neither."""
    check_choice("tool_execution", tool_execution, Literal["parallel", "sequential"])
    return tool_execution == "sequential"


def checked_cut_note(note: object) -> str:
    """A note that providers accept. Raises `ConfigurationError`."""
    if not isinstance(note, str) or not note.strip():
        raise ConfigurationError(
            f"cut_note={note!r} is blank.", todo="Providers refuse blank text: use a short sentence."
        )
    return note


def checked_output_retries(retries: object) -> int:
    """How often an answer that does not fit is asked for again. Raises `ConfigurationError`."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ConfigurationError(f"output_retries={retries!r} makes no sense.", todo="Use a whole number from 0 up.")
    return retries


def checked_state(state: object) -> dict[str, Any]:
    """What the state of each conversation begins with. Raises `ConfigurationError` for what cannot be copied."""
    check_text_keys("state", state)
    try:
        return deepcopy(state) or {}  # pyright: ignore[reportReturnType]
    except Exception as error:  # whatever a type of the user's own raises
        raise ConfigurationError(
            f"state= cannot be copied for each conversation ({type(error).__name__}: {error}).",
            todo="Connections, locks and other objects belong in deps=.",
        ) from None


def check_choice(name: str, value: object, allowed: Any) -> None:
    """Raises `ConfigurationError` unless the value is one of a `Literal`."""
    if value not in get_args(allowed):
        raise ConfigurationError(f"{name}={value!r} is no choice.", todo=f"Use one of: {', '.join(get_args(allowed))}.")


def check_instance(name: str, value: object, kinds: Any, wanted: str) -> None:
    """Raises `ConfigurationError` unless the value is None or of one of these types."""
    if value is not None and not isinstance(value, kinds):
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo=f"Use {wanted}.")


def check_text_keys(name: str, value: object) -> None:
    """Raises `ConfigurationError` unless the value is None or a dict whose keys are text."""
    check_instance(name, value, Mapping, "a dict")
    for key in value if isinstance(value, Mapping) else ():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str):
            raise ConfigurationError(f"{name} has the key {key!r}, which is not text.", todo="Use names as keys.")


def check_agent_options(
    limits: object,
    retry: object,
    on_limit: object,
    settings: object,
    *,
    stop_policy: object,
    calibration: object,
) -> None:
    """Raises `ConfigurationError` for options of an agent that are not what they should be."""
    check_instance("limits", limits, Limits, "Limits(...)")
    check_instance("retry", retry, Retry, "Retry(...)")
    check_choice("on_limit", on_limit, OnLimit)
    check_text_keys("settings", settings)
    check_instance("stop_policy", stop_policy, (str, RequestStopPolicy), "an action, or a RequestStopPolicy")
    check_instance("calibration", calibration, Calibration, "a Calibration")


def checked_agent_name(name: object) -> str:
    """A name that can be shown. Raises `ConfigurationError`."""
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise ConfigurationError(f"An agent cannot have name={name!r}.", todo="Use up to 200 printable characters.")
    return exact_text(name)


def checked_deps_type(deps_type: object) -> Any:
    """The type that `deps=` must have. Raises `ConfigurationError` for what is no type."""
    if deps_type is not None and not is_type(deps_type):
        raise ConfigurationError(f"deps_type={deps_type!r} is not a type.", todo="Use the class of your deps.")
    return deps_type


def checked_context(context: Context | None) -> Context | None:
    """How a long conversation is kept inside the window. Raises `ConfigurationError`."""
    if context is not None and (isinstance(context, type) or not callable(getattr(context, "fit", None))):
        raise ConfigurationError(f"context={context!r} makes no sense.", todo="Use Trim(...) or Summarise(...).")
    return context


def checked_timeout(timeout: object) -> float | None:
    """A timeout that makes sense, or None. Raises `ConfigurationError`."""
    return None if timeout is None else checked_seconds("timeout", timeout)


def checked_tool_choice(choice: object, tools: Mapping[str, Tool]) -> str | None:
    """A tool choice that makes sense with these tools. Raises `ConfigurationError`."""
    if choice is None or (isinstance(choice, str) and choice in {"auto", "none", *tools}):
        return choice
    if choice == "required" and tools:
        return "required"
    known = ", ".join(("auto", "none", *(("required",) if tools else ()), *tools))
    raise ConfigurationError(f"tool_choice={choice!r} makes no sense.", todo=f"Use one of: {known}.")


def check_deps(deps: object, deps_type: Any, agent: str) -> None:
    """Raises `ConfigurationError` unless `deps` are of the type that the agent's tools expect."""
    if deps_type is None:
        return
    try:
        fits = isinstance(deps, deps_type)
    except TypeError:  # a protocol or a generic type: only a type checker can tell
        return
    if not fits:
        wanted = getattr(deps_type, "__name__", repr(deps_type))
        raise ConfigurationError(
            f"The agent {agent!r} needs deps of type {wanted}, and got {type(deps).__name__}.",
            todo=f"Give each run its own: deps={wanted}(...).",
        )
