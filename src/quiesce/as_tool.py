"""Agents as tools: a call that is a run of its own, and a call after which another agent goes on.

The child run hangs below the run whose tool it is: a stop of the parent reaches it through its token, its events, its
bill and what it did are the parent's too. The parent's settling waits for the call and the call waits for the child, so
a tree comes to rest from the leaves up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from .conversation.conversation import Conversation, ConversationState
from .conversation.sealing import SENTENCES
from .errors import ConfigurationError, InterruptError, ToolError
from .interrupts import Answers, InterruptSignal, pass_on
from .messages import AssistantMessage, Outcome, Text, ToolResult
from .receipt import undo_note
from .result import RunResult
from .run.config import RunConfig
from .run.handle import Run, wait_for, wait_shielded
from .run.handoff import Successor, request_handoff
from .run.settle import KILL_SLACK, SETTLING_SLACK
from .tools.context import ToolContext
from .tools.current_run import run_of_call
from .tools.output import as_json
from .tools.policy import FINAL_GRACE
from .tools.tool import HandoffTarget, Tool

# How many characters of a stopped child's answer go into the tool result.
_EXCERPT: Final = 2000
_CUT_SHORT: Final = "(The answer ends here because it reached the greatest length that was allowed.)"

_ILLEGAL: Final = r"[^a-zA-Z0-9_-]+"


class DelegateAgent(Protocol):
    """What the tool needs of the agent behind it."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The agent's tools, by name."""
        ...

    def start(self, prompt: str, *, within: ToolContext, conversation: Conversation) -> Run:
        """Start a run below the one that the context belongs to."""
        ...

    def start_answer(self, answers: Answers, *, within: ToolContext, conversation: Conversation) -> Run:
        """Start a run that goes on after an interrupt."""
        ...

    def fork(self, at: int | None = None) -> DelegateAgent:
        """An agent with the same configuration and the first `at` messages, whose runs and usage are its own."""
        ...


def agent_tool(agent: DelegateAgent, *, name: str | None, description: str | None, memory: bool) -> Tool:
    """A tool whose call is a run of `agent`. See `Agent.as_tool`."""

    async def ask(prompt: str, context: ToolContext) -> ToolResult:
        remembered = _Memory(run_of_call(context.run_id).conversation, context.tool_name) if memory else None
        # On a server each call has an agent of its own, so that `usage` and `cancel()` concern no other owner's runs.
        child = agent.fork(at=0) if context.owner else agent
        if context.kept is None:
            conversation = Conversation() if remembered is None else remembered.conversation()
            run = child.start(prompt, within=context, conversation=conversation)
        else:
            conversation = Conversation.restore(msgspec.convert(context.kept, ConversationState))
            try:
                run = child.start_answer(context.answers, within=context, conversation=conversation)
            except InterruptError as error:  # an answer that the child does not accept leaves the question as it is
                asked = (replace(each, reason=error.what) for each in conversation.interrupts)
                raise InterruptSignal(*pass_on(asked, context.call_id), kept=context.kept) from None
        result = await _end_of(run)
        if result.stop_reason == "interrupt":  # the person is asked by this call, which is then called again
            asked = pass_on(result.interrupts, context.call_id)
            raise InterruptSignal(*asked, kept=msgspec.to_builtins(conversation.snapshot()))
        if remembered is not None:
            remembered.keep(conversation)
        return _report(agent.name, context, result)

    tools = _tools_of(agent)
    tool = Tool(
        ask,
        name=name or tool_name(agent.name),
        description=description or f"Ask the agent {agent.name!r} to do something, in plain words.",
        on_stop="cancel",
        grace=SETTLING_SLACK + max((each.policy.grace for each in tools), default=0.0),
        sequential=memory,
    )
    tool.delegate = agent
    tool.final_grace = KILL_SLACK + max((each.final_grace for each in tools), default=FINAL_GRACE)
    return tool


def _tools_of(agent: DelegateAgent) -> list[Tool]:
    """The tools that a run of the agent may come to use: its own, and those of the agents that it may hand off to."""
    agents: list[HandoffTarget] = [agent]
    for each in agents:
        successors = (tool.handoff_to for tool in each.tools.values())
        agents += [one for one in successors if one is not None and not any(one is known for known in agents)]
    return [tool for each in agents for tool in each.tools.values()]


class _Memory:
    """The conversation that the calls of one tool share, kept with the conversation of the run that makes them."""

    def __init__(self, parent: Conversation, tool_name: str) -> None:
        self._parent: Final = parent
        self._key: Final = f"memory.{tool_name}"

    def conversation(self) -> Conversation:
        """What the earlier calls said."""
        found = self._parent.values.get(self._key)
        return Conversation() if found is None else Conversation.restore(msgspec.json.decode(found, type=_Kept).state)

    def keep(self, conversation: Conversation) -> None:
        """Remember a call that has ended; with a session, it is saved with what follows."""
        kept = msgspec.json.encode(_Kept(ConversationState(conversation.sealed())))
        self._parent.set_value(self._key, kept)


class _Kept(msgspec.Struct):
    state: ConversationState


async def _end_of(run: Run) -> RunResult:
    """Wait for the child. When the call is stopped, stop the child and wait for its end all the same.

    The call then returns instead of raising `CancelledError`: it has something true to say, and says it in time.
    """
    try:
        return await wait_for(run)
    except asyncio.CancelledError:
        run.cancel("The call that it answers was stopped", source="parent")
        await wait_shielded(run)
        return await wait_for(run)


def _report(name: str, context: ToolContext, result: RunResult) -> ToolResult:
    """The tool result for a run of the child. Raises `ToolError` for one that failed."""
    if result.error is not None:
        raise ToolError(f"The agent {name} failed: {getattr(result.error, 'what', result.error)}") from result.error
    if result.receipt.cause is None or _has_last_answer(result):
        answer = as_json(result.parsed[0]) if result.parsed else result.text
        if result.stop_reason == "max_tokens" and not result.parsed:
            answer = f"{answer}\n{_CUT_SHORT}".lstrip()
        return ToolResult(context.call_id, context.tool_name, (Text(answer),))
    left = result.receipt.still_running
    outcome = Outcome.ABANDONED if left else Outcome.CANCELLED
    sentences = [SENTENCES[outcome], f"The cause was {str(result.receipt.cause).rstrip('.')}."]
    if left:
        sentences.append(f"Left running: {', '.join(left)}.")
    if said := result.text:
        sentences.append(f"Until then {name} had said: {said[-_EXCERPT:]}")
    report = " ".join(sentences) + undo_note(result.receipt.undo)
    return ToolResult(context.call_id, context.tool_name, (Text(report),), outcome, is_error=True)


def _has_last_answer(result: RunResult) -> bool:
    """Whether the child reached a limit and gave its last answer, which is whole (on_limit="answer")."""
    last = result.new_messages[-1] if result.new_messages else None
    return result.stop_reason == "limit" and isinstance(last, AssistantMessage) and not last.cut


# --- Handoff -------------------------------------------------------------------------------------------------------


def handoff(agent: Successor, *, name: str | None = None, description: str | None = None) -> Tool:
    """A tool after which `agent` continues the conversation: same run, same conversation, other model and tools.

    The turn in which it is called is finished first. From the next turn on, the model, instructions, tools, output type
    and state are those of `agent`; the run's token, limits and bill stay, and the hooks of both are called. Only one
    handoff per turn counts; a second one is a tool error. Raises `ConfigurationError` for what is not an agent.
    """
    if not isinstance(getattr(agent, "config", None), RunConfig):
        raise ConfigurationError(f"{agent!r} is not an agent.", todo="Use handoff(agent).")

    async def hand_off(context: ToolContext) -> str:
        request_handoff(context, agent)
        return f"The conversation is handed over to {agent.name}."

    tool = Tool(
        hand_off,
        name=name or tool_name(f"hand_over_to_{agent.name}"),
        description=description or f"Let the agent {agent.name!r} continue this conversation.",
    )
    tool.handoff_to = agent
    return tool


def tool_name(wanted: str) -> str:
    """A tool name that providers accept, as close to what is wanted as can be."""
    return re.sub(_ILLEGAL, "_", wanted).strip("_")[:64] or "agent"
