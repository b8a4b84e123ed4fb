"""The numbers under which the effects of a task are stored, when two processes go on with the task in turn."""

from __future__ import annotations

import pytest

from quiesce.messages import ToolCall
from quiesce.tools.undo.effect import Effect, StoredEffect
from quiesce.tools.undo.log import UndoLog

pytestmark = pytest.mark.promise("P4")


class Stored(dict[int, StoredEffect]):
    """What a store has of a task, and a process whose log writes to it."""

    def open(self) -> UndoLog:
        log = UndoLog(task_id="task")
        self.join(log)
        return log

    def join(self, log: UndoLog) -> None:
        known = max(self, default=-1)
        log.restore(dict(self), lambda agent, tool: None)
        log.on_change = self.__setitem__
        log.save_after(known)

    @property
    def calls(self) -> list[str]:
        return [self[number].call.id for number in sorted(self)]


def add(log: UndoLog, call_id: str) -> Effect:
    effect = Effect(log, StoredEffect("run", "agent", ToolCall(call_id, "buy", {}), {}), lambda: None, None)
    log.add(effect)
    return effect


def test_a_late_effect_of_one_process_does_not_replace_one_of_another() -> None:
    store = Stored()
    first = store.open()
    add(first, "one")
    first.on_change = None  # its run has ended, and with it the lease
    late = add(first, "late")

    second = store.open()
    add(second, "two")
    assert store.calls == ["one", "two"]

    store.join(first)
    assert store.calls == ["one", "two", "late"]
    assert [effect.call.id for effect in first.remaining] == ["one", "two", "late"]
    assert late.claim()
    first.changed(late)
    assert [store[number].claimed for number in sorted(store)] == [False, False, True]


def test_effects_keep_their_numbers_when_one_before_them_cannot_be_read() -> None:
    store = Stored()
    log = store.open()
    for call_id in ("one", "two", "three"):
        add(log, call_id)
    del store[0]

    again = store.open()
    last = again.remaining[-1]
    assert last.claim()
    again.changed(last)
    assert [store[number].claimed for number in (1, 2)] == [False, True]
    add(again, "four")
    assert store.calls == ["two", "three", "four"]
