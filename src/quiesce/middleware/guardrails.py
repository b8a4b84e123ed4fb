"""Guardrails: functions that look at a prompt or at an answer, and may stop the run with a reason."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from ..errors import ConfigurationError, GuardrailTripped
from ..events import AnswerEnd, Delta, TextDelta, ToolCallEnd
from ..messages import AssistantMessage, CutNote, Message, UserMessage
from ..run_context import DepsT, RunContext
from .base import Deltas, Middleware, ModelCall, Send

Check: TypeAlias = "Callable[[RunContext[DepsT], str], Awaitable[str | None] | str | None]"

# The note after a prompt that was refused begins so. It is in the conversation, and so in the session.
_MARK: Final = "(Stopped by a guardrail: "


def guardrail_note(tripped: GuardrailTripped, seen: int) -> str:
    """The sentence in the conversation where a guardrail has stopped the run.

    `seen` is how many characters of the answer readers have seen.
    """
    if tripped.keep:
        return f"{_MARK}{tripped.reason})"
    readers = f"Readers had seen {seen} characters of it." if seen else "No reader has seen any of it."
    return f"(An answer was withheld by a guardrail: {tripped.reason}. {readers})"


class InputGuardrail(Middleware[DepsT]):
    """Looks at each prompt before anything is sent. A reason stops the run (cause: `guardrail`).

    function   sync or async, of the `RunContext` and the prompt's text; returns None, or why the run is to stop
    keep       whether the prompt is still sent with later prompts of the conversation. It stays in the conversation
               either way; by default no model ever sees it, as long as the agent has an `InputGuardrail`

    Raises `ConfigurationError` for what is no function.
    """

    def __init__(self, function: Check[DepsT], *, keep: bool = False) -> None:
        self._function: Final = _checked(function)
        self._keep: Final = keep

    @asynccontextmanager
    async def model_call(self, call: ModelCall[DepsT], next: Send[DepsT], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Check the prompts that this call answers, then send it without those that were refused earlier."""
        for prompt in _new_prompts(call.messages):  # at each try: the one before may have failed in the check itself
            reason = await _judge(self._function, call.context, prompt.text)
            if reason is not None:
                raise GuardrailTripped(reason)
        if not self._keep:
            sending = _without_refused(call.messages)
            if len(sending) != len(call.messages):
                call = call.replace(messages=sending)
        async with next(call) as deltas:
            yield deltas


class OutputGuardrail(Middleware[DepsT]):
    """Looks at each final answer: one that asks for no tools. A reason stops the run (cause: `guardrail`).

    function   sync or async, of the `RunContext` and the answer's text; returns None, or why the run is to stop
    hold       whether readers get nothing of an answer before it was checked. Otherwise it is streamed as it comes, and
               readers have seen the answer that is refused
    keep       whether a refused answer that readers have seen stays in the conversation, marked as stopped

    In every case `result.output` raises `OutputMissing`, and a note in the conversation has the reason. Raises
    `ConfigurationError` for what is no function.
    """

    def __init__(self, function: Check[DepsT], *, hold: bool = False, keep: bool = True) -> None:
        self._function: Final = _checked(function)
        self._hold: Final = hold
        self._keep: Final = keep

    @asynccontextmanager
    async def model_call(self, call: ModelCall[DepsT], next: Send[DepsT], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Pass the answer on, and check it before its end."""
        async with next(call) as deltas:
            yield self._checked_answer(call, deltas)

    async def _checked_answer(self, call: ModelCall[DepsT], deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        said: list[str] = []
        held: list[Delta] = []
        uses_tools, ended = False, False
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                said.append(delta.text)
            uses_tools |= isinstance(delta, ToolCallEnd)  # a call without its end is not made
            ended |= isinstance(delta, AnswerEnd)
            if self._hold or ended:  # the end is kept back too, with the usage that follows it
                held.append(delta)
            else:
                yield delta
        if ended and not uses_tools:
            reason = await _judge(self._function, call.context, "".join(said))
            if reason is not None:
                raise GuardrailTripped(reason, keep=self._keep and not self._hold)
        for delta in held:
            yield delta


def _checked(function: Any) -> Any:
    if not callable(function):
        raise ConfigurationError(
            f"{function!r} is not a guardrail.", todo="Use a function of the RunContext and a text, sync or async."
        )
    return function


async def _judge(function: Any, context: RunContext[Any], text: str) -> str | None:
    found = function(context, text)
    reason: Any = await found if inspect.isawaitable(found) else found
    if reason is not None and not isinstance(reason, str):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"the guardrail {name} returned {reason!r}, and not None or a reason")
    return reason


def _new_prompts(messages: tuple[Message, ...]) -> list[UserMessage]:
    """The prompts at the end of the conversation that no model has answered, without those that were refused."""
    found: list[UserMessage] = []
    for message in reversed(_without_refused(messages)):
        if isinstance(message, UserMessage):
            found.insert(0, message)
        elif not isinstance(message, AssistantMessage) or not _is_note(message):
            break
    return found


def _without_refused(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation without the prompts that a guardrail has refused, and the notes about them."""
    kept: list[Message] = []
    for message in messages:
        refused = isinstance(message, AssistantMessage) and _is_note(message, _MARK)
        if refused and kept and isinstance(kept[-1], UserMessage):
            kept.pop()
        else:
            kept.append(message)
    return tuple(kept)


def _is_note(message: AssistantMessage, beginning: str = "") -> bool:
    """Whether a message has nothing but a note of ours in it."""
    return all(isinstance(part, CutNote) and part.text.startswith(beginning) for part in message.content)


__all__ = ["Check", "Deltas", "InputGuardrail", "OutputGuardrail", "guardrail_note"]
