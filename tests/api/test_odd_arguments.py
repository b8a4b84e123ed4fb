"""Each argument of each public constructor, with each of many odd values: refused with an error of ours, or usable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final, get_args

import pytest

import quiesce
from quiesce import Agent, CancellationToken, Conversation, Summarise, Text, Trim, UserMessage, handoff, tool
from quiesce.errors import QuiesceError
from quiesce.events import Event
from quiesce.hooks import HookEvent
from quiesce.models.base import Settings
from quiesce.run.options import RunOptions
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Call, ScriptedModel
from quiesce.tools.tool import ToolOptions

pytestmark = pytest.mark.promise("P7")  # a mistake is told as one

ODD: Final = (
    None, True, 0, -1, 3, 1e-320, 10**400, -(10**400), 1.5, float("nan"), float("inf"), -float("inf"), Decimal("NaN"),
    Decimal("Infinity"), Decimal("1e100000"), Decimal(1), "", " ", "x", "5", "\ud800", "\0", b"x", [], [3], ["x"], (),
    {}, {"a": 1}, {1: 2}, set(), object(), object, lambda: 1, lambda given: given, ...,
)  # fmt: skip


def add(number: int) -> int:
    """Add."""
    return number + 1


# Public names that take nothing from a user: Quiesce makes them, or what they hold is checked where it is used.
NOT_GIVEN: Final = frozenset(
    {
        "Cancelled", "Cause", "CodeExecution", "ConversationState", "FallbackModels", "FileSearch", "Interrupt",
        "Mode", "ModelCall", "Middleware", "Receipt", "Run", "RunContext", "RunOptions", "RunResult", "Settings",
        "SharedConversationWarning", "Task", "ToolCallRequest", "ToolContext", "ToolReturn", "Usage", "WebSearch",
        "Approval", "Approve", "Deny", "MCPServer", "CancellationToken", "Tool",
    }
)  # fmt: skip


def model() -> ScriptedModel:
    return ScriptedModel(Call("add", {"number": 1}), "Two.", then="More.")


def use_agent(agent: Any) -> None:
    agent("Go.", timeout=5)


def use_option(name: str) -> Callable[[Any], None]:
    return lambda value: use_agent(Agent(model(), **{name: value}))


def use_content(content: Any) -> None:
    use_agent(lambda _, **options: Agent(model())([content], **options))


def use_context(context: Any) -> None:
    agent = Agent(model(), context=context)
    use_agent(agent)
    use_agent(agent)


# What is made, the arguments that it needs, and how it is used once it is made.
MADE: Final[dict[Callable[..., Any], tuple[dict[str, Any], Callable[[Any], object]]]] = {
    Agent: ({"model": model(), "store": MemoryStore()}, use_agent),
    tool: ({"function": add}, lambda made: use_agent(Agent(model(), tools=[made]))),
    quiesce.Limits: ({}, use_option("limits")),
    quiesce.Retry: ({}, use_option("retry")),
    quiesce.Price: ({"input": 1, "output": 2}, repr),
    quiesce.ConcurrencyLimit: ({"n": 2}, lambda made: use_agent(Agent(model(), middleware=[made]))),
    quiesce.RateLimit: ({}, repr),
    quiesce.CachePrompt: ({}, lambda made: use_agent(Agent(model(), middleware=[made]))),
    quiesce.Session: ({"name": "s", "store": MemoryStore()}, use_option("session")),
    Summarise: ({"tokens": 100}, use_context),
    Trim: ({"tokens": 100}, use_context),
    quiesce.Image: ({}, use_content),
    quiesce.Audio: ({}, use_content),
    quiesce.Document: ({}, use_content),
    quiesce.Video: ({}, use_content),
    Text: ({"text": "x"}, use_content),
    UserMessage: ({}, lambda made: Agent(model())(made, timeout=5)),
    Conversation: ({}, use_option("conversation")),
    quiesce.MCPServer.stdio: ({"command": "x"}, repr),
    quiesce.InputGuardrail: ({"function": add}, repr),
    quiesce.OutputGuardrail: ({"function": add}, repr),
    handoff: ({"agent": Agent(model(), name="other")}, lambda made: use_agent(Agent(model(), tools=[made]))),
    quiesce.stop_on_signals: ({"target": CancellationToken()}, repr),
    CancellationToken.after: ({"seconds": 1, "self": CancellationToken()}, repr),
}
MCP_OPTIONS: Final = ("prefix", "only", "grace", "connect_timeout", "protocol", "elicitation")
OPTIONS: Final = {tool: tuple(ToolOptions.__annotations__), quiesce.MCPServer.stdio: MCP_OPTIONS}


def arguments() -> Iterator[Any]:
    for make in MADE:
        names = [name for name, each in inspect.signature(make).parameters.items() if each.kind != each.VAR_KEYWORD]
        for name in (*names, *OPTIONS.get(make, ())):
            if name not in ("self", "args", "options", "model", "store"):  # these open files and processes
                yield pytest.param(make, name, id=f"{make.__qualname__}-{name}")


def made_with(make: Callable[..., Any], name: str, value: object) -> None:
    """Make it with this value, and use it."""
    needed, use = MADE[make]
    use(make(**{**needed, name: value}))


@pytest.mark.parametrize(("make", "name"), list(arguments()))
def test_each_argument_with_odd_values(make: Callable[..., Any], name: str) -> None:
    for value in ODD:
        try:
            made_with(make, name, value)
        except QuiesceError:
            pass
        except Exception as error:
            pytest.fail(f"{make.__qualname__}({name}={value!r:.60}): {type(error).__name__}: {error}")


def test_no_public_constructor_is_missing() -> None:
    made = {make.__name__ for make in MADE}
    events = {each.__name__ for each in (*get_args(Event), *HookEvent.__subclasses__())} | {"Event", "HookEvent"}
    others = {name for name in quiesce.__all__ if name.endswith(("Error", "Missing", "ToolCall", "__"))}
    assert set(quiesce.__all__) - made - events - others == NOT_GIVEN


@pytest.mark.parametrize("name", [*RunOptions.__annotations__, *("deps", "state", "token", "answers")])
def test_each_option_of_a_run_with_odd_values(name: str) -> None:
    for value in ODD:
        try:
            Agent(model(), tools=[tool(add)], store=MemoryStore())("Go.", **{"timeout": 5, name: value})
        except QuiesceError:
            pass
        except Exception as error:
            pytest.fail(f"{name}={value!r:.60}: {type(error).__name__}: {error}")


@pytest.mark.parametrize("name", list(Settings.__annotations__))
def test_each_setting_of_a_model_with_odd_values(name: str) -> None:
    for value in ODD:
        try:
            use_agent(Agent(model(), settings={name: value}))
        except QuiesceError:
            pass
        except Exception as error:
            pytest.fail(f"{name}={value!r:.60}: {type(error).__name__}: {error}")
