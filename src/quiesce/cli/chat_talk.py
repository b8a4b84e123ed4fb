"""What a chat knows and does, whatever it looks like: the run, the queue, the sessions, the stop ladder."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..agent import Agent
from ..cancellation import Mode
from ..errors import QuiesceError
from ..events import Event, RunEnded, RunStarted, StopRequested, ToolEnded, ToolProgress, ToolStarted
from ..messages import UserMessage
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
        self._steering: Final[list[str]] = []

    @property
    def session(self) -> Session:
        """The conversation that prompts go to."""
        return self.sessions[self.session_name]

    @property
    def is_running(self) -> bool:
        """Whether a run is going on, and be it to its end."""
        return self.run is not None

    # --- Speaking -----------------------------------------------------------------------------------------------

    def say(self, prompt: str) -> Run:
        """Start a run. Raises what `agent.start` raises."""
        before = len(self.session.conversation.messages)
        run = self.agent.start(prompt, conversation=self.session.conversation)
        self.session.marks.append(before)
        self.run, self.asked = run, None
        self.tools.clear()
        return run

    def steer(self, prompt: str) -> None:
        """Say this as soon as it can be said: what runs now is stopped for it."""
        assert self.run is not None
        steer: Callable[[str], bool] | None = getattr(self.run, "steer", None)
        if self.asked is not None or (steer is not None and steer(prompt)):
            if self.asked is not None:  # a stop is under way: it is the next thing said, when the person wants
                self.queue.appendleft(prompt)
            return
        self._steering.append(prompt)
        self.run.cancel("The person said something else", mode=Mode.NOW)

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
        while self._steering:  # the person wants quiet first
            self.queue.appendleft(self._steering.pop())
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
            case StopRequested(cause) if self.asked is None and not self._steering:
                self.asked, self.asked_at = cause.mode, time.monotonic()  # a deadline, a budget, a tool
            case RunEnded(_, receipt):
                self.receipts.append(receipt)
            case _:
                pass

    async def rest(self) -> str | None:
        """Wait until the run is at rest; returns what is to be said next without asking the person again."""
        assert self.run is not None
        try:
            result = await self.run.result()
            self._put_back(result)
        except QuiesceError as error:
            self._put_back(getattr(error, "result", None))
        was_stopped = self.receipts[-1].cause is not None or self.receipts[-1].stop_reason == "error"
        self.run, self.asked = None, None
        self.tools.clear()
        if self._steering:
            said = "\n".join(self._steering)
            self._steering.clear()
            return said
        # After a stop nothing starts by itself: whoever stopped it may have changed their mind about the rest as well.
        return self.queue.popleft() if self.queue and not was_stopped else None

    def _put_back(self, result: RunResult | None) -> None:
        unsaid: tuple[UserMessage, ...] = getattr(result, "unsaid", ())
        self.queue.extendleft(message.text for message in reversed(unsaid))

    # --- Sessions -----------------------------------------------------------------------------------------------

    def switch(self, name: str) -> bool:
        """Go to a session of this chat; True when it is new. Not while a run is going on."""
        assert self.run is None
        is_new = name not in self.sessions
        self.sessions.setdefault(name, Session())
        self.session_name = name
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
