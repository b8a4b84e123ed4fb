"""What readers have seen of the runs of a session, and whether all of it is in the store afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from quiesce import Session
from quiesce.conversation.validity import faults
from quiesce.events import Event, RunEnded, StoreFailed, TextDelta
from quiesce.messages import AssistantMessage
from quiesce.sessions.store import SessionStore


@dataclass
class SeenRun:
    """One run: its events as a reader got them, and what its receipt said."""

    run_id: str
    events: list[Event] = field(default_factory=list)
    saved: bool | None = None
    """What the receipt says; None when there was none, because the process was killed."""
    answers: list[str] = field(default_factory=list)
    """The texts of the answers of a run that was reported as saved."""
    excused: bool = False
    """Whether it went on in memory, and said so, in a process that is gone or was overtaken."""

    @property
    def words(self) -> str:
        """The text that was shown."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


async def check_session(store: SessionStore, name: str, runs: list[SeenRun]) -> None:
    """Nothing seen is lost or there twice, the session can be read, each run ended once, `saved` was true."""
    session = Session(name, store)
    messages = await session.load()
    assert faults(messages) == ()
    assert not session.damage
    text = "".join(message.text for message in messages if isinstance(message, AssistantMessage))
    records = store.runs(name).result()
    statuses = {run.run_id: run.status for run in records}
    assert set(statuses.values()) <= {"ended", "crashed"}, statuses
    for run in runs:
        assert run.saved is None or sum(isinstance(event, RunEnded) for event in run.events) == 1, run.run_id
        if run.saved:
            assert statuses[run.run_id] == "ended", ("reported as saved, and crashed", run.run_id)
        for answer in run.answers:
            assert text.count(answer) == 1, (answer, run.run_id, text, records)
        if run.excused:
            continue
        if run.run_id not in statuses:
            assert not run.words, "it never got the session, and yet it spoke"
            continue
        assert run.words in text, ("seen and lost", run.run_id, run.words, text)
        stored = [each.event for each in await session.events(run.run_id)]
        kept = [event for event in stored if not isinstance(event, StoreFailed)]
        shown = [event for event in run.events if not isinstance(event, StoreFailed | RunEnded)]
        assert kept[: len(shown)] == shown, ("shown and not stored", run.run_id)
        assert sum(isinstance(event, RunEnded) for event in kept) == (statuses[run.run_id] == "ended")
