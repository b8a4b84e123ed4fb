"""The logic of a chat without its display: the run, the queue, the sessions, and the stops."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..agent import AnyAgent
from ..cancellation import CancellationToken, Mode
from ..events import Event, RunEnded, RunStarted, Steered, StopRequested, ToolEnded, ToolProgress, ToolStarted
from ..hooks import OnLateOutcome
from ..interrupts import Answers, Interrupt
from ..messages import Outcome
from ..receipt import LateOutcome, Receipt, Undone, UndoReceipt
from ..result import RunResult
from ..run.handle import Run
from ..run.waiting import outcome
from ..sessions import Conversation
from ..tools.policy import ToolStopPolicy
from .chat_sessions import ChatSession, ChatSessions, SentPrompt

LADDER: Final = (Mode.NOW, Mode.KILL)


@dataclass
class RunningTool:
    """A tool call that is running."""

    call_id: str
    name: str
    policy: ToolStopPolicy | None
    since: float = field(default_factory=time.monotonic)
    progress: Any = None


@dataclass
class UndoSummary:
    """The result of an undo. `left` names the calls without an undo; `messages` counts the removed messages."""

    outcomes: tuple[UndoReceipt, ...]
    left: tuple[str, ...]
    messages: int


class ChatController:
    """A chat of one user with one agent, in one event loop. A front end calls it and displays its state.

    `on_late_outcome` is called with the late outcome of each abandoned tool call.
    """

    def __init__(self, agent: AnyAgent, sessions: ChatSessions | None = None) -> None:
        self.agent: Final = agent
        self.sessions: Final = sessions or ChatSessions(agent)
        self.on_late_outcome: Callable[[LateOutcome], None] = lambda _: None

        def on_late_outcome(event: OnLateOutcome) -> None:
            self.on_late_outcome(event.outcome)

        agent.hook(OnLateOutcome)(on_late_outcome)
        self.undoing: CancellationToken | None = None
        self.queue: Final[deque[str]] = deque()
        self.tools: Final[dict[str, RunningTool]] = {}
        self.receipts: Final[list[Receipt]] = []
        self.run: Run | None = None
        self.stop_mode: Mode | None = None
        self.stop_requested_at = 0.0
        self.steering_since: float | None = None
        self.answers: dict[str, Any] = {}

    @property
    def session(self) -> ChatSession:
        """The conversation that prompts go to."""
        return self.sessions.current

    @property
    def is_running(self) -> bool:
        """Whether a run, its settling, or an undo is in progress."""
        return self.run is not None or self.undoing is not None

    @property
    def abandoned(self) -> dict[str, list[str]]:
        """The tools of abandoned calls that have no late outcome, by the run's id."""
        found: dict[str, list[str]] = {}
        for receipt in self.receipts:
            ended = {each.call_id for each in receipt.late}
            calls = [call for call in receipt.calls if call.outcome is Outcome.ABANDONED and call.call_id not in ended]
            if calls:
                found[receipt.run_id] = [call.name for call in calls]
        return found

    @property
    def pending_questions(self) -> tuple[Interrupt, ...]:
        """The approvals and questions that the user has not answered."""
        pending = self.session.conversation.pending
        return () if pending is None else tuple(each for each in pending.interrupts if each.id not in self.answers)

    # --- Prompts -----------------------------------------------------------------------------------------------

    def say(self, prompt: str | Answers) -> Run:
        """Start a run with a prompt or with answers. Raises what `agent.start` raises."""
        before = len(self.session.conversation.messages)
        conversation = self.session.conversation
        if isinstance(prompt, str):
            run = self.agent.start(prompt, conversation=conversation)
        else:
            run = self.agent.start_answer(prompt, conversation=conversation)
        if isinstance(prompt, str) or not self.session.prompts:  # answers go on with the prompt before them
            self.session.prompts.append(SentPrompt(before))
        self.run, self.stop_mode, self.answers = run, None, {}
        self.tools.clear()
        return run

    def steer(self, prompt: str) -> bool:
        """Steer the run: its current work is stopped, and it goes on with this prompt.

        False when the run is being stopped or has just ended: the prompt is then first in the queue.
        """
        assert self.run is not None
        if self.stop_mode is None and self.run.steer(prompt):
            self.steering_since = time.monotonic()
            return True
        self.queue.appendleft(prompt)
        return False

    def answer(self, answer: Any) -> Interrupt | None:
        """Answer the first pending question; returns the question, or None without one."""
        if not self.pending_questions:
            return None
        first = self.pending_questions[0]
        self.answers[first.id] = answer
        return first

    def complete_answers(self) -> dict[str, Any] | None:
        """The answers, once every question has one; None before. They are returned once."""
        if self.pending_questions or not self.answers:
            return None
        answers, self.answers = self.answers, {}
        return answers

    # --- Stopping -----------------------------------------------------------------------------------------------

    @property
    def next_mode(self) -> Mode | None:
        """The mode of the next stop; None when no stop is possible."""
        if self.undoing is not None and not self.undoing.cancelled:
            return Mode.NOW
        if self.run is None:
            return None
        return next((mode for mode in LADDER if self.stop_mode is None or mode > self.stop_mode), None)

    def stop(self, reason: str, mode: Mode | None = None) -> Mode | None:
        """Request a stop, each time more urgently; returns the mode, or None when no stop was possible."""
        wanted = mode or self.next_mode
        if self.undoing is not None:
            return wanted if self.undoing.cancel(reason) else None
        if self.run is None or wanted is None:
            return None
        self.run.cancel(reason, mode=wanted)
        if self.stop_mode is None:
            self.stop_requested_at = time.monotonic()
        self.stop_mode = wanted if self.stop_mode is None else max(wanted, self.stop_mode)
        return wanted

    # --- Events ----------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Update the state with an event of the run."""
        match event:
            case RunStarted():
                self.tools.clear()
            case ToolStarted(call):
                tool = self.agent.config.tools.get(call.name)
                self.tools[call.id] = RunningTool(call.id, call.name, None if tool is None else tool.policy)
            case ToolProgress(call_id, _, progress) if call_id in self.tools:
                self.tools[call_id].progress = progress
            case ToolEnded(result):
                self.tools.pop(result.call_id, None)
            case Steered():
                self.steering_since = None
            case StopRequested(cause) if self.stop_mode is None:
                self.stop_mode, self.stop_requested_at = cause.mode, time.monotonic()  # a deadline, a budget, a tool
            case RunEnded(_, receipt):
                self.receipts.append(receipt)
            case _:
                pass

    async def wait_for_end(self) -> str | None:
        """Wait until the run is at rest; returns the queued prompt to send next, or None."""
        assert self.run is not None
        result = await outcome(self.run.state)
        self.session.prompts[-1].results.append(result)
        # Messages that the run accepted and did not send go to the head of the queue.
        self.queue.extendleft(message.text for message in reversed(result.unsent))
        last = self.receipts[-1]
        was_stopped = last.cause is not None or last.stop_reason in ("error", "interrupt")
        self.run, self.stop_mode, self.steering_since = None, None, None
        self.tools.clear()
        # After a stop, no queued prompt starts by itself: the user may no longer want it.
        return self.queue.popleft() if self.queue and not was_stopped else None

    # --- Sessions -----------------------------------------------------------------------------------------------

    async def switch(self, name: str) -> bool:
        """Switch to another conversation; True when it is new. Not during a run. Raises what a store raises."""
        assert self.run is None
        is_new = await self.sessions.switch(name)
        self.answers = {}
        return is_new

    # --- Undoing ------------------------------------------------------------------------------------------------

    async def undo(self) -> UndoSummary | None:
        """Undo the tools of the last prompt, then remove the prompt and its answers; None without a prompt.

        `stop()` stops it. If an undo fails, the messages stay; a second call removes them all the same. A saved
        conversation keeps its messages.
        """
        assert self.run is None
        session = self.session
        if not session.prompts:
            return None
        last = session.prompts[-1]
        had_been_tried = any(result.receipt.undo for result in last.results)
        outcomes = await self._undo_results(last.results)
        left = tuple(dict.fromkeys(name for result in last.results for name in _calls_without_undo(result)))
        if all(each.outcome is Undone.UNDONE for each in outcomes) or (had_been_tried and not outcomes):
            session.prompts.pop()
            return UndoSummary(outcomes, left, self._rewind(session, last.before))
        return UndoSummary(outcomes, left, 0)

    async def _undo_results(self, results: list[RunResult]) -> tuple[UndoReceipt, ...]:
        outcomes: list[UndoReceipt] = []
        self.undoing = token = CancellationToken()
        try:
            for result in reversed(results):
                outcomes += await result.undo(token)
        finally:
            self.undoing = None
        return tuple(outcomes)

    def _rewind(self, session: ChatSession, kept: int) -> int:
        if session.is_saved:
            return 0
        messages = session.conversation.messages
        session.conversation = Conversation(messages[:kept])
        self.answers = {}
        return len(messages) - kept


def _calls_without_undo(result: RunResult) -> list[str]:
    """The names of the completed calls of a run that have no undo."""
    known = {each.call_id for each in result.receipt.undo}
    return [c.name for c in result.receipt.calls if c.outcome is Outcome.COMPLETED and c.call_id not in known]
