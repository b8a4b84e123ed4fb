"""The undo of a task: what all its runs did, in this process and in earlier ones, the last effect first.

The effects of a task are named values of its conversation, so that they outlive the process where there is a store. An
effect is claimed in the store before it is undone: it is undone at most once, whatever process asks.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ..cancellation import CancellationToken
from ..conversation.conversation import Conversation
from ..errors import ConversationBusy
from ..messages import AssistantMessage, CutNote
from ..receipt import UndoReceipt, undo_note
from ..sessions.type_guard import is_session
from ..tools.tool import HandoffTarget, Tool
from ..tools.undo.effect import CRASHED, Effect, StoredEffect
from ..tools.undo.log import UndoLog, undo_in_memory
from .config import RunConfig
from .state import RunState

if TYPE_CHECKING:
    from ..sessions.journal.recovery import Crash

FindTool: TypeAlias = Callable[[str, str], Tool | None]
PREFIX: Final = "undo."
# Two threads may undo parts of one task at the same moment.
_telling: Final = threading.Lock()


# --- The effects of a task, as named values of its conversation ------------------------------------------------------


def begin_effects(state: RunState, task_id: str) -> None:
    """The run begins a task: nothing of it can be undone yet, and the effects of the task before are forgotten."""
    conversation = state.claim.conversation
    if isinstance(conversation.effects, UndoLog):
        conversation.effects.on_change = None  # a call of that task that ends late is not an effect of this one
    for key, value in conversation.values.items():
        if key.startswith((PREFIX, CRASHED)) and value != b"null":
            conversation.set_value(key, b"null")
    _write_to(state, UndoLog(task_id=task_id))


def tell_of_interrupted_undo(conversation: Conversation) -> None:
    """Tell the model what was undone by a process that ended before it could do that."""
    untold = {number: effect for number, effect in _stored_effects(conversation.values).items() if effect.untold}
    receipts = [effect.untold for _, effect in sorted(untold.items(), reverse=True)]
    if untold and tell_model(conversation, filter(None, receipts)):
        for number, effect in untold.items():
            told = msgspec.structs.replace(effect, receipt=effect.untold, told=True)
            conversation.set_value(f"{PREFIX}{number}", msgspec.json.encode(told))


def join_effects(state: RunState, task_id: str) -> None:
    """The run goes on with a task: what its earlier runs did can be undone with what this one does."""
    conversation = state.claim.conversation
    log = task_log(conversation, task_id, partial(find_tool, state.config))
    _write_to(state, log)
    log.save_after(max(_stored_effects(conversation.values), default=-1))


def _write_to(state: RunState, log: UndoLog) -> None:
    conversation = state.claim.conversation
    conversation.effects, written_to = log, weakref.ref(conversation)

    def on_change(number: int, effect: StoredEffect | None) -> None:
        kept_in = written_to()
        if kept_in is not None:
            kept_in.set_value(f"{PREFIX}{number}", msgspec.json.encode(effect))

    log.on_change = on_change
    state.tools.undo_log.join(log)


def task_log(conversation: Conversation, task_id: str, find: FindTool) -> UndoLog:
    """The effects of a task: those that this process knows, those that are stored, and calls that a crash has cut."""
    log = conversation.effects
    if not isinstance(log, UndoLog) or log.task_id != task_id:
        log = UndoLog(task_id=task_id)
    log.restore(_stored_effects(conversation.values), find)
    for crash in _stored_crashes(conversation.values):
        if conversation.task is not None and crash.run_id in conversation.task.run_ids:
            log.add_crashed(crash.run_id, [call for call in crash.unknown if find("", call.name) is not None])
    return log


def _stored_crashes(values: Mapping[str, bytes]) -> Iterator[Crash]:
    """The crashes of the task's runs, each with the calls that it has cut."""
    for value in [value for key, value in values.items() if key.startswith(CRASHED) and value != b"null"]:
        from ..sessions.journal.recovery import Crash

        with suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(value, type=Crash)


def _stored_effects(values: Mapping[str, bytes]) -> dict[int, StoredEffect]:
    """The effects among the named values of a conversation, by their numbers."""
    effects: dict[int, StoredEffect] = {}
    for key, value in values.items():
        if key.startswith(PREFIX):
            with suppress(msgspec.MsgspecError):  # one that cannot be read cannot be undone, and is no reason to fail
                effect = msgspec.json.decode(value, type=StoredEffect | None)
                effects |= {} if effect is None else {int(key[len(PREFIX) :]): effect}
    return effects


def undoable_tools(conversation: Conversation, run_id: str) -> tuple[str, ...]:
    """The names of the tools whose calls can be undone, if a run belongs to the last task of a stored conversation."""
    task = conversation.task
    if task is None or run_id not in task.run_ids:
        return ()
    effects = [effect for _, effect in sorted(_stored_effects(conversation.values).items())]
    return tuple(dict.fromkeys(effect.call.name for effect in effects if not (effect.claimed or effect.cut)))


def find_tool(config: RunConfig, agent: str, name: str) -> Tool | None:
    """A tool of an agent, or of one that it may delegate or hand over to.

    Without the name of an agent: a tool of any of them whose calls can be undone, wholly or in part.
    """
    for agent_name, table in _tables(config.agent, config.tools):
        if name in table and agent_name == agent:
            return table[name]
        if name in table and not agent and _has_undo(table[name]):
            return table[name]
    return None


def _tables(agent: str, tools: Mapping[str, Tool]) -> Iterator[tuple[str, Mapping[str, Tool]]]:
    """The tools of an agent, and those of the agents that it may delegate or hand over to, each with its name."""
    seen: list[HandoffTarget] = []
    tables = [(agent, tools)]
    for each in tables:
        yield each
        for tool in each[1].values():
            for other in (tool.handoff_to, tool.delegate):
                if other is not None and not any(other is known for known in seen):
                    seen.append(other)
                    tables.append((other.name, other.tools))


def _has_undo(tool: Tool) -> bool:
    """Whether a call can be undone, or the calls of an agent that it delegates to."""
    below = () if tool.delegate is None else _tables(tool.delegate.name, tool.delegate.tools)
    return tool.compensation is not None or any(
        each.compensation is not None for _, table in below for each in table.values()
    )


# --- After the end of a run ------------------------------------------------------------------------------------------


class RunUndo:
    """The undo of a run that has ended: of its whole task; of a child run, what the child did."""

    __slots__ = ("_conversation", "_find", "_log", "_task")

    def __init__(self, state: RunState) -> None:
        root = state.family.lineage[-1]
        self._conversation: Final = root.claim.conversation
        log = state.tools.undo_log
        self._task: Final = log.root
        self._log: Final = self._task if root is state else log
        self._find: Final = partial(find_tool, root.config)

    @property
    def remaining(self) -> tuple[Effect, ...]:
        """What can still be undone, as far as this process knows."""
        return self._log.remaining

    async def undo(self, token: CancellationToken | None = None) -> tuple[UndoReceipt, ...]:
        """See `RunResult.undo`."""
        conversation = self._conversation
        if not is_session(conversation) or conversation.effects is not self._task:
            receipts = await undo_in_memory(self._log, token)
            if conversation.effects is self._task:
                _tell_unless_busy(conversation, receipts)
            return receipts
        from .session_undo import SessionUndo

        return await SessionUndo(conversation, self._find).run(token, self._log)


async def undo_task(
    conversation: Conversation, config: RunConfig, token: CancellationToken | None
) -> tuple[UndoReceipt, ...]:
    """Undo the last task of a conversation. What a person is asked is withdrawn first. Raises `ConversationBusy`."""
    find = partial(find_tool, config)
    if is_session(conversation):
        from .session_undo import SessionUndo

        return await SessionUndo(conversation, find, withdraw=config.cut_note).run(token)
    conversation.cancel_pending(config.cut_note)
    task = conversation.task
    if task is None:
        return ()
    log = conversation.effects = task_log(conversation, task.id, find)
    receipts = await undo_in_memory(log, token)
    _tell_unless_busy(conversation, receipts)
    return receipts


def _tell_unless_busy(conversation: Conversation, receipts: tuple[UndoReceipt, ...]) -> None:
    """Tell the model, unless a run holds the conversation."""
    with _telling, suppress(ConversationBusy):
        conversation.hold("undo")
        try:
            tell_model(conversation, receipts)
        finally:
            conversation.release("undo")


def tell_model(conversation: Conversation, receipts: Iterable[UndoReceipt]) -> bool:
    """Let the model know what was undone, at the end of its last answer, so that it does not count on it.

    Whether that was possible.
    """
    last = conversation.messages[-1] if conversation.messages else None
    note = undo_note(receipts).strip()
    if note and conversation.pending is None and isinstance(last, AssistantMessage):
        conversation.append(msgspec.structs.replace(last, content=(*last.content, CutNote(note))), replacing=1)
        return True
    return False
