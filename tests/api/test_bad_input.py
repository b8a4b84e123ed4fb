"""What cannot be meant is refused in words, before anything changes: for every parameter there is, found by looking."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from quiesce import (
    Agent,
    CancellationToken,
    Conversation,
    Limits,
    Retry,
    RunOptions,
    Session,
    Summarise,
    Text,
    Tool,
    Trim,
    tool,
)
from quiesce.errors import ConfigurationError, InterruptError, InvalidPrompt
from quiesce.models.scripted import Say, ScriptedModel
from quiesce.tools.tool import ToolOptions

pytestmark = pytest.mark.feature


def do_nothing() -> None: ...


VALUES: Final[dict[str, Any]] = {
    "none": None,
    "number": 5,
    "negative": -1,
    "fraction": 0.5,
    "nan": math.nan,
    "infinity": math.inf,
    "true": True,
    "text": "5",
    "blank": "",
    "bytes": b"5",
    "list": [],
    "list of text": ["x"],
    "list of numbers": [5],
    "dict": {},
    "dict with a wrong key": {5: 5},
    "object": object(),
    "function": do_nothing,
    "class": int,
}
EVERYTHING: Final = frozenset(VALUES)
SECONDS: Final = frozenset({"none", "number", "fraction"})
INSTRUCTIONS: Final = frozenset({"none", "text", "blank", "list", "list of text", "function", "class"})

# What a parameter accepts of the values above. One that is not here accepts none of them: a new parameter that takes
# what it cannot use fails the test.
AGENT_ACCEPTS: Final[dict[str, frozenset[str]]] = {
    "model": frozenset({"none"}),
    "deps_type": frozenset({"none", "class"}),
    "output_type": frozenset({"none", "class"}),
    "tools": frozenset({"list"}),
    "instructions": INSTRUCTIONS,
    "name": frozenset({"text"}),
    "timeout": SECONDS,
    "limits": frozenset({"none"}),
    "hooks": frozenset({"list"}),
    "retry": frozenset({"none"}),
    "output_retries": frozenset({"number"}),
    "state": frozenset({"none", "dict"}),
    "cut_note": frozenset({"text"}),
    "settings": frozenset({"none", "dict"}),
    "conversation": frozenset({"none"}),
    "session": frozenset({"none", "text"}),
    "store": frozenset({"none", "text"}),
    "stop_policy": frozenset({"none"}),
    "calibration": frozenset({"none"}),
    "telemetry": frozenset({"none"}),
    "context": frozenset({"none"}),
    "middleware": frozenset({"none", "list"}),
    "tool_choice": frozenset({"none"}),
    "first_token_timeout": SECONDS,
    "stream_gap_timeout": SECONDS,
    "max_result": frozenset({"none"}),
}
RUN_ACCEPTS: Final[dict[str, frozenset[str]]] = {
    "deps": EVERYTHING,
    "session": frozenset({"none", "text"}),
    "conversation": frozenset({"none"}),
    "timeout": SECONDS,
    "limits": frozenset({"none"}),
    "token": frozenset({"none"}),
    "model": frozenset({"none"}),
    "settings": frozenset({"none", "dict"}),
    "instructions": INSTRUCTIONS,
    "tools": frozenset({"none", "list"}),
    "retry": frozenset({"none"}),
    "on_busy": frozenset({"none"}),
    "on_prompt": frozenset({"none"}),
    "within": frozenset({"none"}),
    "owner": frozenset({"text", "blank"}),
    "run_id": frozenset({"text", "blank"}),
    "one_step": frozenset({"true"}),
    "output_type": frozenset({"none", "class"}),
    "on_limit": frozenset({"none"}),
    "tool_choice": frozenset({"none"}),
    "middleware": frozenset({"none", "list"}),
    "first_token_timeout": SECONDS,
    "stream_gap_timeout": SECONDS,
}


def chosen(accepts: dict[str, frozenset[str]], name: str, *, good: bool) -> Iterator[tuple[str, Any]]:
    """The values that a parameter accepts, or those that it must refuse."""
    return ((value, VALUES[value]) for value in VALUES if (value in accepts.get(name, ())) == good)


AGENT: Final = [name for name in inspect.signature(Agent.__init__).parameters if name != "self"]
RUN: Final = [*RunOptions.__annotations__, "output_type"]


TOOL_ACCEPTS: Final[dict[str, frozenset[str]]] = {
    "name": frozenset({"none", "text", "blank"}),
    "description": frozenset({"none", "text", "blank"}),
    "on_stop": frozenset({"none"}),
    "grace": SECONDS,
    "timeout": SECONDS,
    "max_memory": frozenset({"none"}),  # the others need on_stop="kill"
    "max_cpu": frozenset({"none"}),
    "inherit_env": frozenset({"true"}),
    "sequential": frozenset({"true", "function"}),
    "idempotent": frozenset({"true"}),
    "requires_approval": frozenset({"true", "function"}),
    "approval_expires_in": SECONDS,
    "preview": frozenset({"none", "function"}),
    "max_result": frozenset({"none"}),
}
TOOL: Final = list(ToolOptions.__annotations__)


def refusal(name: str, made: Callable[[], object]) -> str:
    """What is wrong with the way in which a value is refused; nothing, if that is done in words."""
    try:
        made()
    except ConfigurationError as error:
        said = f"{error.what} {error.todo}".lower()
        clear = len(error.what) > 10 and len(error.todo) > 5 and name.partition("_")[0].rstrip("s") in said
        return "" if clear else f"refused without words: {error}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize("name", AGENT)
def test_an_agent_refuses_what_cannot_be_meant(name: str) -> None:
    found = {
        label: refusal(name, lambda value=value: Agent(**{"model": ScriptedModel("hi"), name: value}))
        for label, value in chosen(AGENT_ACCEPTS, name, good=False)
    }
    assert not {label: wrong for label, wrong in found.items() if wrong}
    for _, value in chosen(AGENT_ACCEPTS, name, good=True):
        if name != "model":  # None is the first that can be had, if there is one
            Agent(**{"model": ScriptedModel("hi"), name: value})


@pytest.mark.parametrize("name", RUN)
async def test_a_run_refuses_what_cannot_be_meant(name: str) -> None:
    agent = Agent(ScriptedModel("hi"))

    def overridden(value: Any) -> None:
        with agent.override(**{name: value}):
            pass

    found: dict[str, str] = {}
    for label, value in chosen(RUN_ACCEPTS, name, good=False):
        found[label] = refusal(name, lambda value=value: agent.start("hi", **{name: value}))
        if name not in (
            "output_type",
            "session",
        ):  # the first is no option of an override, the second is looked up later
            found[f"{label} in override"] = refusal(name, lambda value=value: overridden(value))
    assert not {label: wrong for label, wrong in found.items() if wrong}
    assert agent.active_runs == ()
    assert agent.messages == ()
    assert (await agent.invoke_async("hi")).output == "hi"


@pytest.mark.parametrize("name", TOOL)
def test_a_tool_refuses_what_cannot_be_meant(name: str) -> None:
    found = {
        label: refusal(name, lambda value=value: Tool(do_nothing, **{name: value}))
        for label, value in chosen(TOOL_ACCEPTS, name, good=False)
    }
    assert not {label: wrong for label, wrong in found.items() if wrong}
    for _, value in chosen(TOOL_ACCEPTS, name, good=True):
        Tool(do_nothing, **{name: value})


@pytest.mark.parametrize("prompt", [5, None, {}, object(), b"x", [5], [None], [b"x"], [], "", " ", True, [[Text("x")]]])
def test_a_prompt_of_another_kind_is_refused(prompt: Any) -> None:
    agent = Agent(ScriptedModel("hi"))
    with pytest.raises(InvalidPrompt):
        agent(prompt)
    assert agent.messages == ()


@pytest.mark.parametrize("answers", [5, None, "yes", ["x"], {5: True}])
def test_answers_of_another_kind_are_refused(answers: Any) -> None:
    agent = Agent(ScriptedModel("hi"))
    with pytest.raises(InterruptError, match=r"Answers are a dict|No interrupt 5"):
        agent.answer(answers)


@pytest.mark.parametrize("messages", [["x"], 5, "abc", [5], {}, [None], [Say("x")]])
def test_a_conversation_of_something_else_is_refused(messages: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"(?i)message"):
        Conversation(messages)


async def test_a_conversation_takes_a_list_of_messages() -> None:
    agent = Agent(ScriptedModel("one", "two"))
    messages = list((await agent.invoke_async("hi")).messages)
    conversation = Conversation(messages)  # pyright: ignore[reportArgumentType]
    messages.clear()
    assert len(conversation.messages) == 2


@pytest.mark.parametrize("seconds", [math.nan, math.inf, "5", None, True, [], object()])
def test_a_token_refuses_what_is_no_time(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="seconds"):
        CancellationToken().after(seconds)


@pytest.mark.parametrize("callback", [None, 5, "x"])
def test_a_token_refuses_what_cannot_be_called(callback: Any) -> None:
    token = CancellationToken()
    for register in (token.on_cancel, token.watch):
        with pytest.raises(ConfigurationError, match="function"):
            register(callback)
    token.cancel()  # and nothing was registered
    with pytest.raises(ConfigurationError, match="CancellationToken"):
        CancellationToken.any(token, callback)


@pytest.mark.parametrize("name", [5, None, b"x", [], "", " ", "a\nb"])
def test_names_that_are_none_are_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError):
        Session(name, "memory")
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel(), name=name)
    if name not in (None, ""):  # those mean the name of the function
        with pytest.raises(ConfigurationError):
            tool(name=name)(do_nothing)


@pytest.mark.parametrize("field", Retry.__struct_fields__)
def test_a_retry_that_makes_no_sense_is_refused(field: str) -> None:
    for value in ("5", -1, math.nan, None, True, [], object()):
        assert not refusal(field, lambda value=value: Retry(**{field: value}))


@pytest.mark.parametrize("field", [name for name in inspect.signature(Limits).parameters if name != "cost"])
def test_a_limit_that_makes_no_sense_is_refused(field: str) -> None:
    for value in ("5", -1, 0.5, math.nan, True, [], object()):
        assert not refusal(field, lambda value=value: Limits(**{field: value}))


@pytest.mark.parametrize(("made", "field"), [(Trim, "tokens"), (Trim, "messages"), (Summarise, "tokens")])
def test_a_context_that_makes_no_sense_is_refused(made: Any, field: str) -> None:
    for value in ("5", -1, 0.5, math.nan, True, [], object()):
        assert not refusal(field, lambda value=value: made(**{field: value}))
