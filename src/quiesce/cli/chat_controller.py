"""What a chat knows and does, whatever it looks like: the run, the queue, the sessions, the stop ladder."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..agent import Agent
from ..cancellation import CancellationToken, Mode
from ..events import Event, RunEnded, RunStarted, Steered, StopRequested, ToolEnded, ToolProgress, ToolStarted
from ..hooks import OnLateOutcome
from ..interrupts import Answers, Interrupt
from ..messages import Outcome
from ..receipt import LateOutcome, Receipt, UndoReceipt
from ..receipt import Undone as UndoOutcome
from ..result import RunResult
from ..run.handle import Run
from ..sessions import Conversation
from ..tools.policy import ToolStopPolicy
from .chat_sessions import ChatSession, ChatSessions, Said

LADDER: Final = (Mode.NOW, Mode.KILL)


@dataclass
class RunningTool:
    """A tool call that has begun and not ended."""

    call_id: str
    name: str
    policy: ToolStopPolicy | None
    since: float = field(default_factory=time.monotonic)
    progress: Any = None


@dataclass
class Undone:
    """What became of an undo: of each effect, and of the messages. `left` are calls that have no undo."""

    outcomes: tuple[UndoReceipt, ...]
    left: tuple[str, ...]
    messages: int


class ChatController:
    """One person and one agent. Lives in one event loop; a front end calls it and shows what it says.

    `on_late` is called with what a tool that was left behind came to, whenever that is.
    """

    def __init__(self, agent: Agent, sessions: ChatSessions | None = None) -> None:
        self.agent: Final = agent
        self.sessions: Final = sessions or ChatSessions(agent)
        self.on_late: Callable[[LateOutcome], None] = lambda _: None
        agent.hook(OnLateOutcome)(lambda event: self.on_late(event.outcome))
        self.undoing: CancellationToken | None = None
        self.queue: Final[deque[str]] = deque()
        self.tools: Final[dict[str, RunningTool]] = {}
        self.receipts: Final[list[Receipt]] = []
        self.run: Run | None = None
        self.asked: Mode | None = None
        self.asked_at = 0.0
        self.steering_since: float | None = None
        self.answers: dict[str, Any] = {}

    @property
    def session(self) -> ChatSession:
        """The conversation that prompts go to."""
        return self.sessions.current

    @property
    def is_running(self) -> bool:
        """Whether a run is going on, and be it to its end, or is being undone."""
        return self.run is not None or self.undoing is not None

    @property
    def left_behind(self) -> dict[str, list[str]]:
        """What earlier runs left running, as far as is known, by the run's id."""
        found: dict[str, list[str]] = {}
        for receipt in self.receipts:
            ended = {each.call_id for each in receipt.late}
            calls = [call for call in receipt.calls if call.outcome is Outcome.ABANDONED and call.call_id not in ended]
            if calls:
                found[receipt.run_id] = [call.name for call in calls]
        return found

    @property
    def asking(self) -> tuple[Interrupt, ...]:
        """What the person is asked and has not answered."""
        return tuple(each for each in self.session.conversation.interrupts if each.id not in self.answers)

    # --- Speaking -----------------------------------------------------------------------------------------------

    def say(self, prompt: str | Answers) -> Run:
        """Start a run, with a prompt or with answers to what was asked. Raises what `agent.start` raises."""
        before = len(self.session.conversation.messages)
        run = self.agent.start(prompt, conversation=self.session.conversation)
        if isinstance(prompt, str) or not self.session.said:  # answers go on with the prompt before them
            self.session.said.append(Said(before))
        self.run, self.asked, self.answers = run, None, {}
        self.tools.clear()
        return run

    def steer(self, prompt: str) -> bool:
        """Say this as soon as it can be said: what runs now is stopped for it, and then the run goes on.

        False when the run is being stopped or has just ended: then it is the next thing in the queue.
        """
        assert self.run is not None
        if self.asked is None and self.run.steer(prompt):
            self.steering_since = time.monotonic()
            return True
        self.queue.appendleft(prompt)
        return False

    def answer(self, answer: Any) -> Interrupt | None:
        """Answer the first question that is open; returns it, or None when nothing is asked."""
        if not self.asking:
            return None
        first = self.asking[0]
        self.answers[first.id] = answer
        return first

    def take_answers(self) -> dict[str, Any] | None:
        """The answers to go on with, once every question has one."""
        if self.asking or not self.answers:
            return None
        answers, self.answers = self.answers, {}
        return answers

    # --- Stopping -----------------------------------------------------------------------------------------------

    @property
    def next_mode(self) -> Mode | None:
        """What asking for a stop would do now; None when there is nothing more to ask for."""
        if self.undoing is not None and not self.undoing.cancelled:
            return Mode.NOW
        if self.run is None:
            return None
        return next((mode for mode in LADDER if self.asked is None or mode > self.asked), None)

    def stop(self, reason: str, mode: Mode | None = None) -> Mode | None:
        """Ask for a stop, each time more urgently; returns the mode, or None when there was nothing to ask for."""
        wanted = mode or self.next_mode
        if self.undoing is not None:
            return wanted if self.undoing.cancel(reason) else None
        if self.run is None or wanted is None:
            return None
        self.run.cancel(reason, mode=wanted)
        if self.asked is None:
            self.asked_at = time.monotonic()
        self.asked = wanted if self.asked is None else max(wanted, self.asked)
        return wanted

    # --- Listening ----------------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Keep up with the run."""
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
            case StopRequested(cause) if self.asked is None:
                self.asked, self.asked_at = cause.mode, time.monotonic()  # a deadline, a budget, a tool
            case RunEnded(_, receipt):
                self.receipts.append(receipt)
            case _:
                pass

    async def rest(self) -> str | None:
        """Wait until the run is at rest; returns what is to be said next without asking the person again."""
        assert self.run is not None
        result = await self.run.outcome()
        self.session.said[-1].results.append(result)
        self._put_back(result)
        last = self.receipts[-1]
        was_stopped = last.cause is not None or last.stop_reason in ("error", "interrupt")
        self.run, self.asked, self.steering_since = None, None, None
        self.tools.clear()
        # After a stop nothing starts by itself: whoever stopped it may have changed their mind about the rest as well.
        return self.queue.popleft() if self.queue and not was_stopped else None

    def _put_back(self, result: RunResult) -> None:
        """What the run accepted and did not come to say is not lost."""
        self.queue.extendleft(message.text for message in reversed(result.unsent))

    # --- Sessions -----------------------------------------------------------------------------------------------

    async def switch(self, name: str) -> bool:
        """Go to another conversation; True when it is new. Not while a run is going on. Raises what a store raises."""
        assert self.run is None
        is_new = await self.sessions.switch(name)
        self.answers = {}
        return is_new

    # --- Undoing ------------------------------------------------------------------------------------------------

    async def undo(self) -> Undone | None:
        """Take back what the last prompt's tools did, and then the prompt and all that followed; None without one.

        Esc stops it. The messages stay while something that could be undone is not: they tell what was done. Asked for
        once more, they go all the same. A saved conversation keeps what was said in it.
        """
        assert self.run is None
        session = self.session
        if not session.said:
            return None
        last = session.said[-1]
        had_been_tried = any(result.receipt.undo for result in last.results)
        outcomes = await self._take_back(last.results)
        left = tuple(dict.fromkeys(name for result in last.results for name in _without_undo(result)))
        if all(each.outcome is UndoOutcome.UNDONE for each in outcomes) or (had_been_tried and not outcomes):
            session.said.pop()
            return Undone(outcomes, left, self._rewind(session, last.before))
        return Undone(outcomes, left, 0)

    async def _take_back(self, results: list[RunResult]) -> tuple[UndoReceipt, ...]:
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


def _without_undo(result: RunResult) -> list[str]:
    """The completed calls of a run of which nobody knows how to take them back."""
    known = {each.call_id for each in result.receipt.undo}
    return [c.name for c in result.receipt.calls if c.outcome is Outcome.COMPLETED and c.call_id not in known]
