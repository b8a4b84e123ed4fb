"""What a chat knows and does, whatever it looks like: the run, the queue, the sessions, the stop ladder."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ..agent import Agent
from ..cancellation import Mode
from ..errors import RunError
from ..events import Event, RunEnded, RunStarted, Steered, StopRequested, ToolEnded, ToolProgress, ToolStarted
from ..interrupts import Answers, Interrupt
from ..receipt import Receipt
from ..result import RunResult
from ..run import Run
from ..sessions import Conversation
from ..tools.policy import StopPolicy

LADDER: Final = (Mode.NOW, Mode.KILL)
FIRST_SESSION: Final = "main"


@dataclass
class RunningTool:
    """A tool call that has begun and not ended."""

    call_id: str
    name: str
    policy: StopPolicy | None
    since: float = field(default_factory=time.monotonic)
    progress: Any = None


@dataclass
class Session:
    """A conversation of this chat. `marks` are its lengths before each prompt, for taking them back."""

    conversation: Conversation = field(default_factory=Conversation)
    marks: list[int] = field(default_factory=list[int])


class Talk:
    """One person and one agent. Lives in one event loop; a front end calls it and shows what it says."""

    def __init__(self, agent: Agent) -> None:
        self.agent: Final = agent
        self.sessions: Final[dict[str, Session]] = {FIRST_SESSION: Session(agent.conversation)}
        self.session_name = FIRST_SESSION
        self.queue: Final[deque[str]] = deque()
        self.tools: Final[dict[str, RunningTool]] = {}
        self.receipts: Final[list[Receipt]] = []
        self.run: Run | None = None
        self.asked: Mode | None = None
        self.asked_at = 0.0
        self.steering_since: float | None = None
        self.answers: dict[str, Any] = {}

    @property
    def session(self) -> Session:
        """The conversation that prompts go to."""
        return self.sessions[self.session_name]

    @property
    def is_running(self) -> bool:
        """Whether a run is going on, and be it to its end."""
        return self.run is not None

    @property
    def asking(self) -> tuple[Interrupt, ...]:
        """What the person is asked and has not answered."""
        return tuple(each for each in self.session.conversation.interrupts if each.id not in self.answers)

    # --- Speaking -----------------------------------------------------------------------------------------------

    def say(self, prompt: str | Answers) -> Run:
        """Start a run, with a prompt or with answers to what was asked. Raises what `agent.start` raises."""
        before = len(self.session.conversation.messages)
        run = self.agent.start(prompt, conversation=self.session.conversation)
        if isinstance(prompt, str):  # answers go on with the prompt before them
            self.session.marks.append(before)
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
        if self.run is None:
            return None
        return next((mode for mode in LADDER if self.asked is None or mode > self.asked), None)

    def stop(self, reason: str, mode: Mode | None = None) -> Mode | None:
        """Ask for a stop, each time more urgently; returns the mode, or None when there was nothing to ask for."""
        wanted = mode or self.next_mode
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
                tool = self.agent.setup.tools.get(call.name)
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
        try:
            self._put_back(await self.run.result())
        except RunError as error:
            if error.result is not None:
                self._put_back(error.result)
        last = self.receipts[-1]
        was_stopped = last.cause is not None or last.stop_reason in ("error", "interrupt")
        self.run, self.asked, self.steering_since = None, None, None
        self.tools.clear()
        # After a stop nothing starts by itself: whoever stopped it may have changed their mind about the rest as well.
        return self.queue.popleft() if self.queue and not was_stopped else None

    def _put_back(self, result: RunResult) -> None:
        """What the run accepted and did not come to say is not lost."""
        self.queue.extendleft(message.text for message in reversed(result.unsaid))

    # --- Sessions -----------------------------------------------------------------------------------------------

    def switch(self, name: str) -> bool:
        """Go to a session of this chat; True when it is new. Not while a run is going on."""
        assert self.run is None
        is_new = name not in self.sessions
        self.sessions.setdefault(name, Session())
        self.session_name = name
        self.answers = {}
        return is_new

    def undo(self) -> int:
        """Take the last prompt and all that followed out of the conversation; returns how many messages that was."""
        assert self.run is None
        if not self.session.marks:
            return 0
        messages = self.session.conversation.messages
        kept = self.session.marks.pop()
        self.session.conversation = Conversation(messages[:kept])
        return len(messages) - kept
