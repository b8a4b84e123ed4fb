"""Sessions that are damaged all the same: readable up to there, never written over, and repairable."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Session
from quiesce.cli import main
from quiesce.conversation.validity import faults
from quiesce.errors import StoreDamaged
from quiesce.messages import AssistantMessage, Text, UserMessage
from quiesce.sessions.journal.rows import encode
from quiesce.sessions.records import RunBegin, WriteBatch, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import ScriptedModel, run_virtual

pytestmark = pytest.mark.promise("P9")

DAMAGES = {
    "two prompts in a row": ("UPDATE messages SET payload = ? WHERE position = 3", encode(UserMessage((Text("Odd"),)))),
    "a message that cannot be read": ("UPDATE messages SET payload = ? WHERE position = 3", b"{\xff"),
    "a message that is gone": ("DELETE FROM messages WHERE position = ?", 3),
    "the last message is gone": ("DELETE FROM messages WHERE position = ?", 5),
    "a message too many": ("INSERT INTO messages SELECT session, 6, run, payload FROM messages WHERE position = ?", 5),
    "a question that cannot be read": (
        "INSERT OR REPLACE INTO session_values SELECT id, 'conversation.pending', ? FROM sessions",
        b"{\xff",
    ),
    "a state that cannot be read": (
        "INSERT OR REPLACE INTO session_values SELECT id, 'conversation.state', ? FROM sessions",
        b"{\xff",
    ),
    "a task that cannot be read": ("UPDATE session_values SET value = ? WHERE key = 'conversation.task'", b"{"),
}
KEPT = {
    "the last message is gone": 4,
    "a message too many": 6,
    "a question that cannot be read": 6,
    "a state that cannot be read": 6,
    "a task that cannot be read": 6,
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int]:
    """A store with a session of six messages, one of them damaged; and how many messages are whole."""
    path = tmp_path / "sessions.db"
    store = SQLiteStore(path)

    async def talk() -> None:
        agent = Agent(ScriptedModel("A1", "A2", "A3"), session="ann/s", store=store, name="agent")
        for prompt in ("Q1", "Q2", "Q3"):
            await agent.invoke_async(prompt)

    asyncio.run(talk())
    store.close().result()
    with sqlite3.connect(path) as db:
        statement, value = DAMAGES[request.param]
        db.execute(statement, (value,))
    db.close()
    return path, KEPT.get(request.param, 2)


def written(path: Path) -> list[list[Any]]:
    """What runs have written into a store."""
    with closing(sqlite3.connect(path)) as db:
        return [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("messages", "session_values", "journal")]


def test_a_damaged_session_is_read_up_to_the_damage_and_repaired(
    damaged: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, whole = damaged
    store = SQLiteStore(path)
    session = Session("ann/s", store)
    assert len(session.load_sync()) == whole
    assert session.damage
    before = written(path)
    with pytest.raises(StoreDamaged, match="sessions repair ann/s"):
        Agent(ScriptedModel("No."), session=Session("ann/s", store))("Go")
    store.close().result()
    assert written(path) == before, "never written over"
    assert main(["sessions", "show", "ann/s", "--store", str(path)]) == 0
    assert "DAMAGED" in capsys.readouterr().out
    copy = tmp_path / "copy.jsonl"
    assert main(["sessions", "repair", "ann/s", "--store", str(path), "-o", str(copy)]) == 0
    assert f"{whole} messages are kept" in capsys.readouterr().out
    assert copy.exists()
    assert main(["sessions", "repair", "ann/s", "--store", str(path)]) == 0
    assert "Nothing is wrong" in capsys.readouterr().out
    again = SQLiteStore(path)
    result = Agent(ScriptedModel("Well again."), session="ann/s", store=again)("Go")
    assert result.receipt.saved
    assert len(result.messages) == whole + 2
    assert faults(result.messages) == ()
    again.close().result()


def test_a_server_shows_a_damaged_session(damaged: tuple[Path, int]) -> None:
    from quiesce.server.stored_runs import StoredRuns

    path, whole = damaged
    store = SQLiteStore(path)
    agent = Agent(ScriptedModel(), name="agent")
    restored = asyncio.run(StoredRuns(store, {"agent": agent}).session("ann", "s"))
    store.close().result()
    assert restored is not None
    session, runs = restored
    assert (session.name, len(session.messages), len(runs)) == ("s", whole, 3)
    assert isinstance(session.conversation, Session)
    assert session.conversation.damage


def _crashed(store: SessionStore, run: str, first: int, words: str, started: float) -> None:
    """A run that has asked, and has said some words, and nothing more."""
    from quiesce.events import AnswerStart, ModelCallStarted, TextDelta
    from quiesce.sessions.journal.rows import Commit

    lease = store.acquire("s", holder(run), seconds=60).result().lease
    batch = WriteBatch(run)
    batch.begin = RunBegin("agent", started)
    batch.messages, batch.first_message = [UserMessage((Text(f"Q {run}"),))], first
    batch.entries = [Commit(1), ModelCallStarted(1, 1, "x"), AnswerStart("i", "x"), TextDelta(words)]
    store.write(lease, batch).result()
    store.release(lease).result()


def test_recovery_does_not_touch_what_a_later_run_has_saved() -> None:
    """A store as older versions could leave it: the first run never ended, and others came after it."""

    async def check() -> None:
        store = MemoryStore()
        _crashed(store, "one", 0, "Lost words", 1.0)
        lease = store.acquire("s", holder("two"), seconds=60).result().lease
        later = WriteBatch("two")
        later.begin = RunBegin("agent", 2.0)
        later.first_message = 1
        later.messages = [AssistantMessage((Text("A"),)), UserMessage((Text("Q2"),)), AssistantMessage((Text("A2"),))]
        later.values = {"conversation.writer": b"two"}
        store.write(lease, later).result()
        store.release(lease).result()
        result = await Agent(ScriptedModel("A3"), session=Session("s", store)).invoke_async("Q3")
        assert [message.text for message in result.messages] == ["Q one", "A", "Q2", "A2", "Q3", "A3"]
        assert {run.run_id: run.status for run in store.runs("s").result()}["one"] == "crashed"

    run_virtual(check())


def test_a_conversation_that_sealing_would_spoil_is_not_written() -> None:
    async def check() -> None:
        store = MemoryStore()
        _crashed(store, "one", 0, "Words", 1.0)
        _crashed(store, "two", 1, "More words", 2.0)  # a user message after a user message
        before = store.load("s").result()
        for _ in range(2):
            with pytest.raises(StoreDamaged):
                await Agent(ScriptedModel("No."), session=Session("s", store)).invoke_async("Q3")
        after = store.load("s").result()
        assert (after.messages, after.unfinished) == (before.messages, before.unfinished)

    run_virtual(check())
