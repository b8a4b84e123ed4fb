"""The logic of a chat without its display: the run, the queue, the answers to what it asks, and the stops."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ..cancellation import CancellationToken, Mode
from ..errors import QuiesceError
from ..events import Event, RunEnded, RunStarted, Steered, StopRequested, ToolEnded, ToolProgress, ToolStarted
from ..interrupts import Answers, Approve, Interrupt
from ..messages import Outcome
from ..receipt import Receipt
from ..tools.policy import ToolStopPolicy
from .chat_backend import Backend, ChatPrompt, ChatRun, UndoSummary
from .trace_tree import TraceTree

LADDER: Final = (Mode.NOW, Mode.KILL)


@dataclass
class RunningTool:
    """A tool call that is running."""

    call_id: str
    name: str
    policy: ToolStopPolicy | None
    since: float = field(default_factory=time.monotonic)
    progress: Any = None


class ChatController:
    """A chat of one user with one agent, in one event loop. A front end calls it and displays its state."""

    def __init__(self, backend: Backend) -> None:
        self.backend: Final = backend
        self.undoing: CancellationToken | None = None
        self.queue: Final[deque[ChatPrompt]] = deque()
        self.tools: Final[dict[str, RunningTool]] = {}
        self.receipts: Final[list[Receipt]] = []
        self.run: ChatRun | None = None
        self.starting = False
        self._taken: ChatPrompt | None = None
        self.stop_mode: Mode | None = None
        self.stop_requested_at = 0.0
        self.steering_since: float | None = None
        self.answers: dict[str, Any] = {}
        self.always: Final[set[str]] = set()
        self.trace: Final = TraceTree()
        backend.on_stop_failed = self._on_stop_failed

    @property
    def is_running(self) -> bool:
        """Whether a run, its start, its settling, or an undo is in progress."""
        return self.run is not None or self.starting or self.undoing is not None

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
        return tuple(each for each in self.backend.pending if each.id not in self.answers)

    # --- Prompts -----------------------------------------------------------------------------------------------

    async def say(self, prompt: ChatPrompt | Answers) -> ChatRun:
        """Start a run with a prompt or with answers.

        Raises a `QuiesceError`; a prompt that was taken from the queue is then first in it again.
        """
        self.starting = True
        try:
            is_prompt = isinstance(prompt, ChatPrompt)
            run = await (self.backend.start(prompt) if is_prompt else self.backend.answer(prompt))
        except QuiesceError:
            if isinstance(prompt, ChatPrompt) and prompt is self._taken:
                self.queue.appendleft(prompt)
            raise
        finally:
            self.starting, stopped = False, self.stop_mode
            self.stop_mode = None
        self.follow(run)
        if stopped is not None:  # while it was being started
            self.stop("stopped at its start", stopped)
        return run

    def follow(self, run: ChatRun) -> None:
        """Make a run the one that the keys are for."""
        self.run, self.stop_mode, self.answers = run, None, {}
        self.tools.clear()

    def take_queued(self) -> ChatPrompt:
        """Take the first prompt from the queue, to send it."""
        self._taken = self.queue.popleft()
        return self._taken

    async def steer(self, prompt: ChatPrompt) -> bool:
        """Steer the run: its current work is stopped, and it goes on with this prompt.

        False when the run is being stopped or has just ended: the prompt is then first in the queue.
        """
        if self.run is not None and self.stop_mode is None and await self.run.steer(prompt):
            self.steering_since = time.monotonic()
            return True
        self.queue.appendleft(prompt)
        return False

    # --- Answers ------------------------------------------------------------------------------------------------

    def answer(self, answer: Any) -> Interrupt | None:
        """Answer the first pending question; returns the question, or None without one."""
        if not self.pending_questions:
            return None
        first = self.pending_questions[0]
        self.answers[first.id] = answer
        return first

    def approve_always(self) -> Interrupt | None:
        """Approve the first pending call, and from now on in this conversation every call of that tool."""
        if not self.pending_questions or self.pending_questions[0].kind != "approval":
            return None
        self.always.add(self.pending_questions[0].tool_name)
        return self.answer(Approve())

    def answer_always(self) -> tuple[Interrupt, ...]:
        """Approve the pending calls of tools that are always approved; returns them."""
        found = tuple(q for q in self.pending_questions if q.kind == "approval" and q.tool_name in self.always)
        self.answers |= {each.id: Approve() for each in found}
        return found

    def complete_answers(self) -> dict[str, Any] | None:
        """The answers, once the run is at rest and every question has one; None before. They are returned once."""
        if self.run is not None or self.pending_questions or not self.answers:
            return None
        asked, given, self.answers = {each.id for each in self.backend.pending}, self.answers, {}
        return {name: answer for name, answer in given.items() if name in asked} or None

    # --- Stopping -----------------------------------------------------------------------------------------------

    @property
    def next_mode(self) -> Mode | None:
        """The mode of the next stop; None when no stop is possible."""
        if self.undoing is not None and not self.undoing.cancelled:
            return Mode.NOW
        if self.run is None and not self.starting:
            return None
        return next((mode for mode in LADDER if self.stop_mode is None or mode > self.stop_mode), None)

    def stop(self, reason: str, mode: Mode | None = None) -> Mode | None:
        """Request a stop, each time more urgently; returns the mode, or None when no stop was possible."""
        wanted = mode or self.next_mode
        if self.undoing is not None:
            return wanted if self.undoing.cancel(reason) else None
        if wanted is None or not self.is_running:
            return None
        if self.run is not None:
            self.run.cancel(reason, wanted)
        if self.stop_mode is None:
            self.stop_requested_at = time.monotonic()
        self.stop_mode = wanted if self.stop_mode is None else max(wanted, self.stop_mode)
        return wanted

    def _on_stop_failed(self) -> None:
        """No stop is under way: the next one is an ordinary one again."""
        self.stop_mode = None

    # --- Events ----------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Update the state with an event of the run."""
        if isinstance(event, RunStarted):
            self.trace.clear()
        self.trace.add(event, time.monotonic())
        match event:
            case RunStarted():
                self.tools.clear()
            case ToolStarted(call):
                self.tools[call.id] = RunningTool(call.id, call.name, self.backend.policy(call.name))
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

    async def wait_for_end(self) -> ChatPrompt | None:
        """Wait until the run is at rest; returns the queued prompt to send next, or None."""
        assert self.run is not None
        run = self.run
        # Messages that the run accepted and did not send go to the head of the queue.
        self.queue.extendleft(ChatPrompt.of(message) for message in reversed(await run.rest()))
        last = self.receipts[-1] if self.receipts and self.receipts[-1].run_id == run.id else None
        was_stopped = last is None or last.cause is not None or last.stop_reason in ("error", "interrupt")
        self.run, self.stop_mode, self.steering_since = None, None, None
        self.tools.clear()
        # After a stop, no queued prompt starts by itself: the user may no longer want it.
        return self.take_queued() if self.queue and not was_stopped else None

    # --- Sessions and undoing -----------------------------------------------------------------------------------

    async def switch(self, name: str) -> bool:
        """Switch to another conversation; True when it is new. Not during a run. Raises what a store raises."""
        assert self.run is None
        is_new = await self.backend.switch(name)
        self.answers = {}
        self.always.clear()
        return is_new

    async def undo(self) -> UndoSummary | None:
        """Undo the tools of the last prompt; None without a prompt. `stop()` stops it."""
        assert self.run is None
        self.undoing = CancellationToken()
        try:
            undone = await self.backend.undo(self.undoing)
        finally:
            self.undoing = None
        if undone is not None and undone.messages:
            self.answers = {}
        return undone
