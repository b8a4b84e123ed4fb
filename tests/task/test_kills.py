"""kill -9 in the middle of a task with approvals, sub-agents, edits and commands; stops and undos in between.

The folder is what the store says, and what the receipt of an undo says; the budget holds over all processes; no file is
written or restored twice.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from quiesce import Session
from quiesce.conversation.validity import faults
from quiesce.errors import SessionNotFound
from quiesce.messages import AssistantMessage, Outcome, ToolMessage, ToolResult
from quiesce.receipt import Undone
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.tools.undo.effect import StoredEffect

from .killed_workshop import AFTER, BEFORE, CALLS, TOOL_CALLS, TURNS, make_folder

pytestmark = pytest.mark.promise("P4", "P9")

# The call that has written a path: by the lead itself, or by a sub-agent.
EFFECTS: Final = {"a": "a.txt", "n": "review.txt", "x": "built.txt", "b": "b.txt", "m": "readme.txt", "y": "tests.txt"}
# A process that is killed while it writes a file leaves the new content beside it.
UNFINISHED: Final = re.compile(r"\.(.+)\.[0-9a-f]{12}$")


class Workshop:
    """Starts the processes of tasks, each in a folder of its own, and checks what they leave."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = itertools.count()
        self.processes = self.killed = 0
        command = [sys.executable, "-m", "tests.task.killed_workshop"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        self._process.communicate()

    def task(self) -> KilledTask:
        place = self._place / str(next(self._numbers))
        place.mkdir()
        make_folder(place / "folder")
        return KilledTask(self, place)

    def run(self, job: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        status: int = json.loads(self._process.stdout.readline())["status"]
        self.processes += 1
        self.killed += status == 9
        assert status in (0, 9), f"the process failed by itself: {job}"
        return status


class KilledTask:
    """One task: its folder, its store, and what its processes did."""

    def __init__(self, workshop: Workshop, place: Path) -> None:
        self._workshop, self._place = workshop, place
        self.folder = place / "folder"

    def process(self, action: str = "go", **how: Any) -> bool:
        """A process that goes on with the task, or undoes it; whether it came to its end. Checks everything then."""
        files = {"store": str(self._place / "store.db"), "witness": str(self._place / "witness")}
        status = self._workshop.run({**files, "folder": str(self.folder), "action": action, "undo": False, **how})
        self.check()
        return status == 0

    def witness(self, kind: str) -> list[list[str]]:
        path = self._place / "witness"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line[1:] for line in lines if line[0] == kind]

    def content(self) -> dict[str, str]:
        return {each.name: each.read_text() for each in self.folder.iterdir()}

    @property
    def is_over(self) -> bool:
        """Whether the last process has brought the task to its end, or undone it."""
        ended = [each[0] for each in self.witness("ended")]
        return bool(ended) or bool(self.witness("undone"))

    # --- What must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        assert len(self.witness("request")) <= TURNS, "more turns than the budget has"
        self._check_writes()
        store = SQLiteStore(self._place / "store.db")
        try:
            session = Session("s", store)
            try:
                session.load_sync()
            except SessionNotFound:
                assert self.content() == BEFORE
                return
            assert faults(session.sealed()) == ()
            assert session.task is None or session.task.used.tool_calls <= TOOL_CALLS
            self._check_folder(session)
        finally:
            store.close().result()

    def _check_writes(self) -> None:
        """No call is made twice, and none is undone twice."""
        writes = Counter((path, content) for path, content in self.witness("write"))
        removes = Counter(path for (path,) in self.witness("remove"))
        assert max((*writes.values(), *removes.values()), default=0) <= 1, (writes, removes)

    def _check_folder(self, session: Session) -> None:
        effects = [each for each in _stored_effects(session) if not each.cut]
        results = {each.call_id: each for each in _results(session)}
        waiting = {call_id for call_id in _calls(session) if call_id not in results}
        content = self.content()
        for path, (_, call_id) in CALLS.items():
            effect = next((each for each in effects if EFFECTS[each.call.id] == path), None)
            allowed = _allowed(path, effect, None if call_id in waiting else results.get(call_id))
            assert content.pop(path, None) in allowed, (path, effect, results.get(call_id))
        for left in content:  # beside a file whose write, or whose undo, is not said to be over
            match = UNFINISHED.match(left)
            assert match, left

    def check_undone(self) -> None:
        """After an undo that came to its end: what is not as it was is named, on a receipt and in the store.

        A process that is killed after its last write, and before its caller has the receipt, leaves that to the store.
        """
        store = SQLiteStore(self._place / "store.db")
        session = Session("s", store)
        session.load_sync()
        store.close().result()
        effects = _stored_effects(session)
        assert all(each.claimed and each.receipt is not None and each.told for each in effects)
        named = {_path(each.call.id) for each in effects if each.receipt and each.receipt.outcome != Undone.UNDONE}
        for *_, lines in (*self.witness("undone"), *self.witness("ended")):
            outcomes = {_path(call_id): outcome for call_id, _, outcome, _ in json.loads(lines)}
            assert Undone.FAILED not in outcomes.values(), lines
            assert {path for path, outcome in outcomes.items() if outcome != Undone.UNDONE} <= named
        for path in AFTER:
            if self.content().get(path) != BEFORE.get(path):
                known = [(each.call.id, each.receipt and each.receipt.outcome, each.cut) for each in effects]
                results = [(each.call_id, each.outcome) for each in _results(session)]
                told = f"{path} is {self.content().get(path)!r}, and neither a receipt nor the store says so"
                assert path in named, f"{told}: {known}, {results}"


def _stored_effects(session: Session) -> list[StoredEffect]:
    values = [value for key, value in session.values.items() if key.startswith("undo.") and value != b"null"]
    return [msgspec.json.decode(value, type=StoredEffect) for value in values]


def _path(call_id: str) -> str:
    return EFFECTS.get(call_id) or next(path for path, (_, each) in CALLS.items() if each == call_id)


def _calls(session: Session) -> set[str]:
    answers = [each for each in session.messages if isinstance(each, AssistantMessage)]
    if session.pending is not None and session.pending.answer is not None:
        answers.append(session.pending.answer)
    return {call.id for each in answers for call in each.tool_calls}


def _results(session: Session) -> list[ToolResult]:
    found = [each for message in session.messages if isinstance(message, ToolMessage) for each in message.results]
    calls = () if session.pending is None else session.pending.calls
    return [*found, *(call.result for call in calls if call.result is not None)]


def _allowed(path: str, effect: StoredEffect | None, result: ToolResult | None) -> tuple[str | None, ...]:
    """What a file may be, by what the store says of the call that writes it."""
    before, after = BEFORE.get(path), AFTER[path]
    unknown = (
        (before, after, "") if path in ("built.txt", "tests.txt") else (before, after)
    )  # a command is cut anywhere
    if effect is not None and effect.claimed:
        done = effect.receipt is not None and effect.receipt.outcome is Undone.UNDONE
        return (before,) if done else (before, after)
    if effect is not None and result is not None and result.outcome not in (Outcome.COMPLETED, Outcome.UNKNOWN):
        return unknown  # the snapshot of a command that was stopped is an effect, too
    if effect is not None:
        return (after,)
    if result is None or result.outcome is Outcome.NEVER_STARTED:
        return (before,)
    return (after,) if result.outcome is Outcome.COMPLETED and not result.is_error else unknown


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.close()


def play(workshop: Workshop, dice: random.Random, first: dict[str, Any] | None = None) -> None:
    """A task over several processes. Some are killed, some stop the run, with or without undo; the last one undoes."""
    task = workshop.task()
    for number in range(dice.randint(1, 4)):
        how = first if first is not None and number == 0 else {"kill_at": dice.randint(2, 200)}
        if first is None and dice.random() < 0.3:
            how = {"kill_after": dice.uniform(0.0, 0.8)}
        if dice.random() < 0.3:
            how = {**how, "stop_at": dice.randint(2, 150), "undo": dice.random() < 0.5}
        ended = task.process("undo" if number and dice.random() < 0.2 else "go", **how)
        if ended and task.is_over:
            break
    if not task.is_over and dice.random() < 0.5:
        task.process()
    while not task.process("undo", kill_at=dice.randint(2, 120)):
        pass
    task.process("undo")
    task.check_undone()
    task.process("undo")
    assert json.loads(task.witness("undone")[-1][0]) == []


def test_a_kill_in_the_middle_and_an_undo(workshop: Workshop) -> None:
    """Other points and other ways to go on are in `make proof`."""
    task = workshop.task()
    assert not task.process(kill_at=90)
    assert task.process("undo")
    task.check_undone()


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_killed_at_every_step(workshop: Workshop) -> None:
    """The first process is killed before each step of its loop, and others at random after it."""
    dice = random.Random(1)
    for step in range(2, 230):
        play(workshop, dice, {"kill_at": step})
    print(f"{workshop.processes} processes, {workshop.killed} killed, 0 violations")
    assert workshop.killed > 300


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random(workshop: Workshop, seed: int) -> None:
    dice = random.Random(100 + seed)
    for _ in range(150):
        play(workshop, dice)
    print(f"{workshop.processes} processes, {workshop.killed} killed, 0 violations")
