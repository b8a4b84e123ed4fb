"""Runs of earlier processes, read from the store. Crashed ones are brought to rest first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from ..agent import AnyAgent
from ..errors import SessionBusy, SessionNotFound, StoreDamaged
from ..events import Event, InterruptAnswered, MessageAdded, RunEnded, TextDelta
from ..interrupts import Interrupt
from ..messages import Message, Outcome, UserMessage
from ..phases import Phase
from ..run.undo import undoable_tools
from ..sessions import Session, SessionStore
from ..sessions.journal.buffer import WRITER
from ..sessions.journal.rows import NumberedEvent, late_outcomes
from ..sessions.records import Lease, RunRecord
from ..sessions.stored_receipt import journaled_entries, receipt_of, saved_receipt
from ..usage.ledger import LedgerEntry, summarise
from .run_metadata import PROMPT_LENGTH, TEXT_TAIL_LENGTH, RunMetadata
from .schemas import RunStatus, RunView, usage_view
from .sessions import OwnedSession
from .stored_log import StoredEvents, StoredLog
from .stored_session import StoredSession, stored_name
from .stream_readers import StreamReaders

_log: Final = logging.getLogger("quiesce.server")


class StoredRun:
    """A run that is not in memory any more, read from the store. One that crashed was brought to rest first."""

    run = None
    result = None

    def __init__(
        self,
        record: RunRecord,
        numbered: Sequence[NumberedEvent],
        session: Session,
        *,
        owner: str,
        name: str,
        agent: AnyAgent,
    ) -> None:
        events = [each.event for each in numbered]
        prompt = _prompt(events)[:PROMPT_LENGTH]
        self.id: Final = record.run_id
        self.info: Final = RunMetadata(owner, agent, name, prompt, record.started)
        self.conversation: Final = session
        self.readers: Final = StreamReaders(None, self.info)
        self.ended_at: Final = record.ended or record.started
        self.receipt: Final = receipt_of(record, events)
        self.entries: Final = self.receipt.usage.entries  # with those of sub-agents, which have journals of their own
        self.status: Final[RunStatus] = "ended" if record.status == "ended" else "crashed"
        # The run that wrote to the session last, as the session has noted it: that run may have been deleted.
        is_last = session.values.get(WRITER, b"").decode() == record.run_id and session.holder is None
        self._last_messages: Final = session.messages if is_last else ()
        self._asked: Final = {each.id for each in session.interrupts} if is_last else set[str]()
        self._answers: Final = tuple(event.record for event in events if isinstance(event, InterruptAnswered))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        self._text_tail: Final = text[-TEXT_TAIL_LENGTH:]
        end = RunEnded(self.receipt.stop_reason, self.receipt)
        self.log: Final = StoredLog(StoredEvents(session, record.run_id), numbered, end)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation of the run's session."""
        return self.conversation.messages

    def view(self, *, live: bool = False) -> RunView:  # noqa: ARG002
        """The run as clients see it."""
        return RunView(
            id=self.id,
            agent=self.info.agent.name,
            session=self.info.session,
            state=self.status,
            phase=Phase.ENDED,
            stop_reason=self.receipt.stop_reason,
            prompt=self.info.prompt,
            created_at=self.info.created_at,
            ended_at=self.ended_at,
            mode=self.receipt.mode,
            cause=self.receipt.cause,
            waiting_for=(),
            interrupts=self.interrupts,
            usage=usage_view(summarise(self.entries)),
            text_tail=self._text_tail,
            last_event=self.log.last,
            undoable=undoable_tools(self.conversation, self.id),
            task="" if self.receipt.task is None else self.receipt.task.id,
            answers=self._answers,
        )

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The approvals and questions that the run ended with and that have no answer yet."""
        return tuple(each for each in self.conversation.interrupts if each.id in self._asked)

    def cancel_interrupts(self) -> bool:
        """Withdraw the pending approvals and questions. False without any."""
        return bool(self.interrupts) and bool(self.conversation.cancel_pending(self.info.agent.config.cut_note))

    @property
    def has_moved_on(self) -> bool:
        """Whether the session has messages that are newer than this run, as far as the store shows."""
        return self.conversation.messages != self._last_messages


class StoredRuns:
    """Reads the sessions of these agents, and their runs, from a store."""

    def __init__(self, store: SessionStore, agents: Mapping[str, AnyAgent]) -> None:
        self.store: Final = store
        self._agents: Final = agents

    async def session(self, owner: str, name: str) -> tuple[OwnedSession, list[RunRecord]] | None:
        """A session and its runs, the oldest first; None when there is none, or its agent is not served any more.

        A session that a crash left open is sealed; not one in which another server is executing a run. Raises a
        `StoreError`.
        """
        session = StoredSession(stored_name(owner, name), self.store)
        try:
            records = await self._load(session)
        except SessionNotFound:
            return None
        agent = self._agents.get(records[-1].agent) if records else None
        if agent is None:
            return None
        return OwnedSession(name, agent, session, max(run.ended or run.started for run in records)), records

    async def run(self, owner: str, session: OwnedSession, record: RunRecord) -> StoredRun:
        """An ended run of a session that was loaded. Raises a `StoreError`."""
        conversation = session.conversation
        assert isinstance(conversation, Session)
        run = StoredRun(
            record,
            await StoredEvents(conversation, record.run_id).after(0, most=None),
            conversation,
            owner=owner,
            name=session.name,
            agent=session.agent,
        )
        if any(call.outcome is Outcome.ABANDONED for call in run.receipt.calls):
            rows = await asyncio.wrap_future(self.store.rows(conversation.name, run.id, marks=True))
            with suppress(StoreDamaged):
                run.receipt.late.extend(late_outcomes(rows))
        return run

    async def seal(self, session: OwnedSession) -> None:
        """Seal what a run left open in a session, unless another server is executing a run in it."""
        assert isinstance(session.conversation, Session)
        with suppress(SessionBusy):
            await _seal(session.conversation)

    async def entries(self, stored_as: str, record: RunRecord) -> tuple[LedgerEntry, ...]:
        """What the requests of an ended run have used. Raises a `StoreError`."""
        saved = saved_receipt(record)
        if saved is not None:
            return saved.usage.entries
        found = await StoredEvents(Session(stored_as, self.store), record.run_id).after(0, most=None)
        return journaled_entries(record.run_id, [each.event for each in found])

    async def _load(self, session: Session) -> list[RunRecord]:
        """Load a session, sealed if a crash left it open; returns its runs."""
        records = await asyncio.wrap_future(self.store.runs(session.name))
        try:
            if any(record.status == "running" for record in records):
                await _seal(session)
                records = await asyncio.wrap_future(self.store.runs(session.name))
            else:
                await session.load()
        except SessionBusy:
            await session.load()
        except StoreDamaged as error:
            _log.warning("session %s is damaged; only its intact part is shown: %s", session.name, error)
            await session.load()
        return records


@asynccontextmanager
async def held(session: Session) -> AsyncGenerator[None]:
    """Hold a session for the block; this seals what a dead process left in it. Raises `SessionBusy` at once."""
    at_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    at_once.set_result(None)
    lease = await session.open(at_once)
    try:
        yield
    finally:
        if isinstance(lease, Lease):
            await asyncio.wrap_future(session.store.release(lease))


async def _seal(session: Session) -> None:
    async with held(session):
        pass


def _prompt(events: Sequence[Event]) -> str:
    for event in events:
        if isinstance(event, MessageAdded) and isinstance(event.message, UserMessage):
            return event.message.text
    return ""
