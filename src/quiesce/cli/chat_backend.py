"""What a chat talks to: an agent of this process, or one of a server. The protocols, and the agent of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..agent import AnyAgent
from ..cancellation import CancellationToken, Mode
from ..events import Event
from ..hooks import OnLateOutcome
from ..interrupts import Answers, Interrupt
from ..messages import Outcome, UserContent, UserMessage
from ..phases import Phase
from ..receipt import LateOutcome, Undone, UndoReceipt
from ..result import RunResult
from ..run.handle import Run, wait_for
from ..sessions import Conversation
from ..tools.policy import ToolStopPolicy
from .chat_sessions import ChatSession, ChatSessions, SentPrompt, last_lines


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt: as it is shown, and its content, which also has what was pasted and the attached files."""

    shown: str
    content: tuple[UserContent, ...]

    @classmethod
    def of(cls, message: UserMessage) -> ChatPrompt:
        """A message that a run gave back."""
        return cls(message.text, message.content)


@dataclass
class UndoSummary:
    """The result of an undo. `left` names the calls without an undo; `messages` counts the removed messages."""

    outcomes: tuple[UndoReceipt, ...]
    left: tuple[str, ...]
    messages: int


class ChatRun(Protocol):
    """A run as a chat uses it."""

    @property
    def id(self) -> str:
        """The run's id."""
        ...

    @property
    def phase(self) -> Phase:
        """What it is doing, as far as is known here."""
        ...

    @property
    def usage(self) -> str:
        """What it has used so far."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """The events from the first to the last. Raises `ServerProblem` when a server is away for too long."""
        ...

    def cancel(self, reason: str, mode: Mode) -> None:
        """Request a stop; returns at once."""
        ...

    def cancel_tool(self, call_id: str, reason: str) -> None:
        """Stop one tool call; returns at once."""
        ...

    async def steer(self, prompt: ChatPrompt) -> bool:
        """Steer the run; False when it is too late for that."""
        ...

    async def rest(self) -> tuple[UserMessage, ...]:
        """Wait until it is at rest; returns the prompts that it accepted and did not send."""
        ...


class Backend(Protocol):
    """An agent and its conversations."""

    on_late_outcome: Callable[[LateOutcome], None]
    on_problem: Callable[[str], None]
    on_stop_failed: Callable[[], None]

    @property
    def title(self) -> tuple[str, str]:
        """The names of the agent and of its model."""
        ...

    @property
    def session(self) -> str:
        """The name of the conversation that prompts go to."""
        ...

    @property
    def is_saved(self) -> bool:
        """Whether that conversation outlives the chat."""
        ...

    @property
    def pending(self) -> tuple[Interrupt, ...]:
        """What waits for an answer in it."""
        ...

    def policy(self, tool: str) -> ToolStopPolicy | None:
        """The stop policy of a tool, if it is known."""
        ...

    async def begin(self) -> ChatRun | None:
        """Read the conversation; returns the run that is going on in it. Raises a `QuiesceError`."""
        ...

    async def start(self, prompt: ChatPrompt) -> ChatRun:
        """Start a run with a prompt. Raises a `QuiesceError`."""
        ...

    async def answer(self, answers: Answers) -> ChatRun:
        """Start a run with answers to what is pending. Raises a `QuiesceError`."""
        ...

    async def undo(self, token: CancellationToken) -> UndoSummary | None:
        """Undo the tools of the last prompt, until the token stops that; None without a prompt."""
        ...

    async def usage(self) -> str:
        """What has been used."""
        ...

    async def switch(self, name: str) -> bool:
        """Go to another conversation; True when it is new. Raises a `QuiesceError`."""
        ...

    async def session_lines(self) -> list[str]:
        """One line for each conversation, the current one marked. Raises a `QuiesceError`."""
        ...

    def last_messages(self) -> str:
        """The last prompt and answer of the conversation, on two lines; empty without messages."""
        ...

    async def close(self) -> None:
        """Close what it has opened, when the chat is left."""
        ...


class LocalRun:
    """A run of this process."""

    def __init__(self, run: Run, results: list[RunResult]) -> None:
        self._run: Final = run
        self._results: Final = results

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return self._run.phase

    @property
    def usage(self) -> str:
        """What it has used so far."""
        return str(self._run.usage)

    def events(self) -> AsyncIterator[Event]:
        """The events from the first to the last."""
        return self._run.events()

    def cancel(self, reason: str, mode: Mode) -> None:
        """Request a stop."""
        self._run.cancel(reason, mode=mode)

    def cancel_tool(self, call_id: str, reason: str) -> None:
        """Stop one tool call."""
        self._run.cancel_tool(call_id, reason)

    async def steer(self, prompt: ChatPrompt) -> bool:
        """Steer the run; False when it is too late for that."""
        return self._run.steer(prompt.content)

    async def rest(self) -> tuple[UserMessage, ...]:
        """Wait until it is at rest; returns the prompts that it accepted and did not send."""
        result = await wait_for(self._run)
        if not any(each is result for each in self._results):
            self._results.append(result)
        return result.unsent


def _ignore(*_: Any) -> None:
    pass


class LocalBackend:
    """An agent of this process, with conversations in memory or in a store."""

    def __init__(self, agent: AnyAgent, sessions: ChatSessions | None = None) -> None:
        self._agent: Final = agent
        self._sessions: Final = sessions or ChatSessions(agent)
        self.on_late_outcome: Callable[[LateOutcome], None] = _ignore
        self.on_problem: Callable[[str], None] = _ignore
        self.on_stop_failed: Callable[[], None] = _ignore

        def on_late_outcome(event: OnLateOutcome) -> None:
            self.on_late_outcome(event.outcome)

        agent.hook(OnLateOutcome)(on_late_outcome)

    @property
    def title(self) -> tuple[str, str]:
        """The names of the agent and of its model."""
        return self._agent.name, self._agent.config.model.name

    @property
    def session(self) -> str:
        """The name of the conversation."""
        return self._sessions.name

    @property
    def is_saved(self) -> bool:
        """Whether the conversation outlives the chat."""
        return self._sessions.current.is_saved

    @property
    def pending(self) -> tuple[Interrupt, ...]:
        """What waits for an answer."""
        pending = self._sessions.current.conversation.pending
        return () if pending is None else pending.interrupts

    def policy(self, tool: str) -> ToolStopPolicy | None:
        """The stop policy of a tool, if the agent has it."""
        known = self._agent.config.tools.get(tool)
        return None if known is None else known.policy

    async def begin(self) -> ChatRun | None:
        """Read the conversation. No run of another process is followed."""
        await self._sessions.load()
        return None

    async def start(self, prompt: ChatPrompt) -> ChatRun:
        """Start a run with a prompt."""
        session = self._sessions.current
        before = len(session.conversation.messages)
        run = self._agent.start(prompt.content, conversation=session.conversation)
        session.prompts.append(SentPrompt(before))
        return LocalRun(run, session.prompts[-1].results)

    async def answer(self, answers: Answers) -> ChatRun:
        """Start a run with answers: it goes on with the prompt before them."""
        session = self._sessions.current
        before = len(session.conversation.messages)
        run = self._agent.start_answer(answers, conversation=session.conversation)
        if not session.prompts:
            session.prompts.append(SentPrompt(before))
        return LocalRun(run, session.prompts[-1].results)

    async def undo(self, token: CancellationToken) -> UndoSummary | None:
        """Undo the tools of the last prompt, then remove the prompt and its answers; None without a prompt.

        If an undo fails, the messages stay; a second call removes them all the same. A saved conversation keeps its
        messages.
        """
        session = self._sessions.current
        if not session.prompts:
            return None
        last = session.prompts[-1]
        had_been_tried = any(result.receipt.undo for result in last.results)
        outcomes: list[UndoReceipt] = []
        for result in reversed(last.results):
            outcomes += await result.undo(token)
        left = tuple(dict.fromkeys(name for result in last.results for name in _calls_without_undo(result)))
        if all(each.outcome is Undone.UNDONE for each in outcomes) or (had_been_tried and not outcomes):
            session.prompts.pop()
            return UndoSummary(tuple(outcomes), left, _rewind(session, last.before))
        return UndoSummary(tuple(outcomes), left, 0)

    async def usage(self) -> str:
        """What the agent has used."""
        return str(self._agent.usage)

    async def switch(self, name: str) -> bool:
        """Go to another conversation; True when it is new."""
        return await self._sessions.switch(name)

    async def session_lines(self) -> list[str]:
        """One line for each conversation."""
        return await self._sessions.lines()

    def last_messages(self) -> str:
        """The last prompt and answer of the conversation."""
        return last_lines(self._sessions.current.conversation.messages)

    async def close(self) -> None:
        """The store belongs to the command."""


def _rewind(session: ChatSession, kept: int) -> int:
    if session.is_saved:
        return 0
    messages = session.conversation.messages
    session.conversation = Conversation(messages[:kept])
    return len(messages) - kept


def _calls_without_undo(result: RunResult) -> list[str]:
    """The names of the completed calls of a run that have no undo."""
    known = {each.call_id for each in result.receipt.undo}
    return [c.name for c in result.receipt.calls if c.outcome is Outcome.COMPLETED and c.call_id not in known]
