"""A conversation in memory."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._exact import NotJSON, exact
from ..cancellation import Mode, Source
from ..errors import ConfigurationError, InvalidConversation, UnknownInterrupt
from ..interrupts import Answers, ArgumentCheck, Interrupt, PendingCall, PendingTurn, answer_turn
from ..messages import AssistantMessage, Message, UserMessage
from ..task import Task
from .lock import ConversationLock
from .paused import end_paused
from .sealing import DEFAULT_CUT_NOTE, close_turn, last_complete_turn, seal_pending, still_asked
from .validity import faults

TASK: Final = "conversation.task"
"""The named value that has the last task."""
KEPT_RESULT: Final = "result."
"""The names of values that are tool results in full, which the messages have without their middle, begin with this."""


class ConversationRun(Protocol):
    """What a conversation needs of the handle of a run that holds it or waits for it."""

    def cancel(self, reason: str = "", *, source: Source = "user") -> bool:
        """Ask the run to stop."""
        ...

    def steer(self, prompt: UserMessage) -> bool:
        """Send the run a prompt; whether it takes it."""
        ...

    def take_answers(self, answers: Answers) -> bool:
        """Give the run the answers to what its calls ask; whether it takes them. Raises an `InterruptError`."""
        ...

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What the calls of the run ask a person while it goes on."""
        ...

    @property
    def mode(self) -> Mode | None:
        """How urgently the run was asked to stop, if it was."""
        ...


class ConversationState(Struct, frozen=True):
    """Everything of a conversation that must survive a restart. Serialises with msgspec, for example to JSON."""

    messages: tuple[Message, ...] = ()
    pending: PendingTurn | None = None
    values: dict[str, bytes] = {}


class TaskEffects(Protocol):
    """What the task of a conversation did that can be undone, as this process knows it."""

    @property
    def task_id(self) -> str:
        """The id of the task."""
        ...


class Conversation:
    """The messages that were exchanged, valid at every moment, and the run that holds them.

    One run at a time may write. Reading is safe from any thread: the state is replaced whole. A turn that waits for a
    person is kept beside the messages, as `pending`.
    """

    def __init__(self, messages: Sequence[Message] = (), *, pending: PendingTurn | None = None) -> None:
        messages = _checked_messages(messages)
        if not isinstance(pending, PendingTurn | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"pending={pending!r} is no pending turn.", todo="Use Conversation.pending.")
        found = faults(messages if pending is None else (*messages, *seal_pending(pending, DEFAULT_CUT_NOTE)))
        if pending is None and messages and not isinstance(messages[-1], AssistantMessage):
            found = (*found, "a conversation to continue must end with an assistant message")
        if found:
            raise InvalidConversation(found)
        self._state = ConversationState(messages, pending)
        this = weakref.ref(self)
        self._lock: Final = ConversationLock(lambda: getattr(this(), "pending", None) is not None)
        self._id: Final = uuid.uuid4().hex
        self.runs: Final[dict[str, ConversationRun]] = {}
        """The run that holds the conversation and those that wait for it, by their ids."""
        self.effects: TaskEffects | None = None
        """What the last task did that can be undone. Written by its runs."""
        self.values: dict[str, bytes] = {}
        """Small named values that go with the conversation, and are saved with it where it is saved."""
        self._shared_state: dict[str, Any] | None = None
        self._task: Task | None = None

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What tells this conversation from all others."""
        return self._id

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that is settled."""
        return self._state.messages

    @property
    def pending(self) -> PendingTurn | None:
        """The turn that waits for a person, unless a run goes on with it already."""
        pending = self._state.pending
        return None if pending is None or pending.taken_by is not None else pending

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What a person is asked: by the pending turn, or by calls of a run that goes on meanwhile."""
        pending = self.pending
        if pending is not None:
            return pending.interrupts
        run = self.runs.get(self.holder or "")
        return () if run is None else run.interrupts

    @property
    def state(self) -> dict[str, Any]:
        """What tools and hooks keep between the runs of this conversation: theirs to read and write."""
        return self.begin_state({})

    def begin_state(self, initial: dict[str, Any]) -> dict[str, Any]:
        """The state; a copy of `initial` when the conversation has none yet."""
        if self._shared_state is None:
            self._shared_state = deepcopy(initial)
        return self._shared_state

    def replace_state(self, state: dict[str, Any] | None) -> None:
        """The state as it is stored; None when none is."""
        self._shared_state = state

    def check_state(self) -> None:
        """Raises a `RunError` when the state cannot be saved where the conversation is saved."""

    @property
    def task(self) -> Task | None:
        """The last prompt with everything that followed from it; None before the first one."""
        found = None if self._task is not None else self.values.get(TASK)
        return self._task if found is None else msgspec.json.decode(found, type=Task)

    def set_task(self, task: Task) -> None:
        """Set the last task. In memory it is encoded with the whole conversation, not at the start and end of a run."""
        self._task = task

    def set_value(self, key: str, value: bytes) -> None:
        """Set a named value, which is saved with what happens next where the conversation is saved."""
        self.values[key] = value

    @property
    def session_name(self) -> str | None:
        """The name of the session; None for a conversation that is only in memory."""
        return None

    @property
    def must_be_opened(self) -> bool:
        """Whether a run that holds it must wait for a store before it can begin."""
        return False

    def sealed(self, note: str = DEFAULT_CUT_NOTE) -> tuple[Message, ...]:
        """The messages as they would be if the pending approval were dropped; `messages` if none is pending."""
        state = self._state
        if state.pending is None or state.pending.taken_by is not None:
            return state.messages
        return (*state.messages, *seal_pending(state.pending, note))

    def snapshot(self) -> ConversationState:
        """The state as it is in this instant, to be stored."""
        state, values = self._state, dict(self.values)
        if self._task is not None:
            values[TASK] = msgspec.json.encode(self._task)
        return ConversationState(state.messages, state.pending, values)

    @classmethod
    def restore(cls, state: ConversationState, note: str = DEFAULT_CUT_NOTE) -> Conversation:
        """A conversation from a stored state.

        What waited for a person still waits. What a run was in the middle of is sealed: calls that were free to run are
        answered as `unknown`, and are not made again; calls of the same turn that a person was still asked about are
        asked about again. Raises `InvalidConversation` for a state that makes no sense.
        """
        pending = state.pending
        if pending is not None and pending.taken_by is not None:
            pending = still_asked(pending, {}) or pending
        if pending is not None and pending.taken_by is None:
            restored = cls(state.messages, pending=pending)
        else:
            torn = close_turn((), state.messages, note) if pending is None else seal_pending(pending, note)
            restored = cls((*state.messages, *torn))
        restored.values = dict(state.values)
        return restored

    # --- One at a time ------------------------------------------------------------------------------------------

    @property
    def holder(self) -> str | None:
        """The id of the run that writes here, if one does."""
        return self._lock.holder

    @property
    def queued(self) -> tuple[str, ...]:
        """The ids of the runs that wait to write here, in order."""
        return self._lock.queued

    def hold(self, run_id: str) -> None:
        """Take the conversation for a run. Raises `ConversationBusy` when another one has it."""
        self._lock.acquire(run_id)

    def queue(self, run_id: str, on_acquired: Callable[[], None], *, answers: bool = False) -> None:
        """Let a run wait for the conversation. `on_acquired` is called, in any thread, when it holds it.

        While an approval is pending, queued runs wait, except for one that `answers` it.
        """
        self._lock.queue(run_id, on_acquired, answers=answers)

    def release(self, run_id: str) -> None:
        """Give the conversation back, or leave the queue."""
        self.runs.pop(run_id, None)
        self._lock.release(run_id)

    def reset_lock(self) -> None:
        """In a forked child: no run of this process holds the conversation, or waits for it."""
        self._lock.reset()
        self.runs.clear()

    def stop_all(self, reason: str, *, source: Source = "user") -> None:
        """Stop the run that holds the conversation, and those that wait for it. From any thread."""
        for run in tuple(self.runs.copy().values()):
            run.cancel(reason, source=source)

    # --- Writing: for the run that holds it ---------------------------------------------------------------------

    def append(self, *messages: Message, replacing: int = 0) -> None:
        """Add messages, all in one step, in place of the last `replacing` ones and of a pending turn."""
        before = self._state.messages
        self._state = ConversationState(before[: len(before) - replacing] + messages)

    def suspend(self, pending: PendingTurn, *, replacing: int = 0) -> None:
        """Keep a turn that waits for a person."""
        before = self._state.messages
        self._state = ConversationState(before[: len(before) - replacing], pending)

    def take_pending(self, answers: Answers, check: ArgumentCheck, run_id: str) -> PendingTurn:
        """The pending turn with answers in it, for the run that goes on with it. Raises an `InterruptError`."""
        pending = self.pending
        if pending is None:
            raise UnknownInterrupt(next(iter(answers), None), ())
        taken = answer_turn(pending, answers, check, taken_by=run_id)
        self._state = ConversationState(self._state.messages, taken)
        return taken

    def note_answers(self, calls: tuple[PendingCall, ...], run_id: str) -> PendingTurn | None:
        """Note in the turn that a run has taken that more of its calls are answered. The turn, if there is one."""
        taken = self._state.pending
        if taken is None or taken.taken_by != run_id:
            return None
        noted = replace(taken, calls=calls)
        self._state = ConversationState(self._state.messages, noted)
        return noted

    def drop_pending(self, note: str = DEFAULT_CUT_NOTE) -> None:
        """Answer the calls that wait as never approved, so that a user message may follow."""
        if self.task is not None:
            end_paused(self.task.id)
        self.append(*self.sealed(note)[len(self._state.messages) :])

    # --- More ---------------------------------------------------------------------------------------------------

    def cancel_pending(self, note: str = DEFAULT_CUT_NOTE) -> tuple[Interrupt, ...]:
        """Do not wait for the person any longer; returns what was asked. The next prompt then simply works.

        The waiting calls are answered as never started (or, when they asked from inside their tool, as stopped).
        Without anything pending, nothing happens. Raises `ConversationBusy` while a run holds the conversation.
        """
        if self.pending is None:
            return ()
        holder = f"cancel_pending-{uuid.uuid4().hex[:8]}"  # another thread may do the same right now
        self.hold(holder)
        try:
            asked = self.interrupts
            if asked:
                self.drop_pending(note)
        finally:
            self.release(holder)
        return asked

    def branch(self, at: int | None = None) -> Conversation:
        """A conversation of its own that begins with what is settled in this one, or with its first `at` messages.

        Where that is the middle of a turn, it begins with what came before the turn. An open question to a person stays
        with the original.
        """
        made = Conversation(last_complete_turn(self.sealed(), at))
        made.values.update((name, value) for name, value in self.values.items() if name.startswith(KEPT_RESULT))
        return made


def _checked_messages(messages: object) -> tuple[Message, ...]:
    """The messages that a conversation begins with, of exact types. Raises `InvalidConversation` for anything else."""
    if not isinstance(messages, list | tuple):
        raise InvalidConversation((f"{type(messages).__name__} is not a list of messages",))
    wrong = {type(each).__name__ for each in messages if not isinstance(each, Message)}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if wrong:
        raise InvalidConversation(
            (f"{', '.join(sorted(wrong))} is not a UserMessage, AssistantMessage or ToolMessage",)
        )
    try:
        return tuple(exact(message, Message) for message in messages)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except NotJSON as error:
        raise InvalidConversation((str(error),)) from None
