"""Runs of earlier processes, read from the store. Crashed ones are brought to rest first."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import quote, unquote

import msgspec

from ..agent import Agent, AnyAgent
from ..errors import StoreDamaged, StoreError
from ..events import Event, MessageAdded, ModelCallEnded, ModelCallStarted, RunEnded, TextDelta
from ..interrupts import Interrupt
from ..messages import Message, Outcome, UserMessage
from ..phases import Phase
from ..receipt import CallReceipt, EndReason, Receipt
from ..run.undo import undoable_tools
from ..sessions import Session, SessionStore
from ..sessions.journal.recovery import Crash
from ..sessions.journal.rows import NumberedEvent, late_outcomes
from ..sessions.records import Lease, RunRecord
from ..usage.ledger import LedgerEntry, summarise
from .run_info import PROMPT_LENGTH, TEXT_TAIL_LENGTH, RunInfo
from .schemas import RunStatus, RunView, usage_view
from .stored_log import StoredEvents, StoredLog
from .stream_readers import StreamReaders

_log: Final = logging.getLogger("quiesce.server")


def stored_name(owner: str, session: str) -> str:
    """The name of an owner's session in the store."""
    return f"{quote(owner, safe='@')}/{session}"


def owner_and_name(stored: str) -> tuple[str, str] | None:
    """The owner and the name of a stored session; None for a session that was not made by a server."""
    owner, slash, name = stored.partition("/")
    return (unquote(owner), name) if slash and owner and name else None


class StoredRun:
    """A run of an earlier process that ended, or crashed and was brought to rest when the store was opened."""

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
        is_last: bool,
    ) -> None:
        events = [each.event for each in numbered]
        prompt = _prompt(events)[:PROMPT_LENGTH]
        self.id: Final = record.run_id
        self.info: Final = RunInfo(owner, agent, name, prompt, record.started)
        self.conversation: Final = session
        self.readers: Final = StreamReaders(None, self.info)
        self.ended_at: Final = record.ended or record.started
        self.entries: Final = _entries(record.run_id, events)
        self.receipt: Final = _receipt(record, self.entries)
        self.status: Final[RunStatus] = "ended" if record.status == "ended" else "crashed"
        self._last_messages: Final = session.messages if is_last else ()
        self._asked: Final = {each.id for each in session.interrupts} if is_last else set[str]()
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        self._text_tail: Final = text[-TEXT_TAIL_LENGTH:]
        end = RunEnded(self.receipt.stop_reason, self.receipt)
        self.log: Final = StoredLog(StoredEvents(session, record.run_id), numbered, end)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation of the run's session."""
        return self.conversation.messages

    def view(self) -> RunView:
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


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """A stored session of an owner, its agent and its runs, the oldest first."""

    owner: str
    name: str
    agent: AnyAgent
    session: Session
    runs: tuple[StoredRun, ...]


class StoredRuns:
    """The sessions and runs of earlier servers in a store."""

    def __init__(self, store: SessionStore) -> None:
        self.store: Final = store

    async def restore(self, agents: dict[str, Agent], most: int) -> list[RestoredSession]:
        """The stored sessions of these agents, at most so many, the oldest first.

        Sessions that a crash left open are sealed. A session that another living process holds is left out.
        """
        found: list[RestoredSession] = []
        infos = await asyncio.wrap_future(self.store.sessions())
        for info in reversed(infos[:most]):
            try:
                restored = await self._restore_one(info.name, agents)
            except StoreError as error:
                _log.warning("session %s is not restored: %s", info.name, error)
                continue
            if restored is not None:
                found.append(restored)
        return found

    async def _restore_one(self, stored_as: str, agents: dict[str, Agent]) -> RestoredSession | None:
        owner_and_session = owner_and_name(stored_as)
        if owner_and_session is None:
            return None
        owner, name = owner_and_session
        session = Session(stored_as, self.store)
        records = await self._load(session)
        agent = agents.get(records[-1].agent) if records else None
        if agent is None:
            return None
        runs = [
            StoredRun(
                record,
                await StoredEvents(session, record.run_id).after(0, most=None),
                session,
                owner=owner,
                name=name,
                agent=agent,
                is_last=record is records[-1],
            )
            for record in records
        ]
        for run in runs:
            await self._add_late_outcomes(stored_as, run)
        return RestoredSession(owner, name, agent, session, tuple(runs))

    async def _load(self, session: Session) -> list[RunRecord]:
        """Load a session, sealed if a crash left it open; returns its runs."""
        records = await asyncio.wrap_future(self.store.runs(session.name))
        try:
            if any(record.status == "running" for record in records):
                await _seal(session)
                records = await asyncio.wrap_future(self.store.runs(session.name))
            else:
                await session.load()
        except StoreDamaged as error:
            _log.warning("session %s is damaged; only its intact part is shown: %s", session.name, error)
            await session.load()
        return records

    async def _add_late_outcomes(self, stored_as: str, run: StoredRun) -> None:
        """Add to the receipt the outcomes of abandoned calls that were stored after it."""
        if any(call.outcome is Outcome.ABANDONED for call in run.receipt.calls):
            rows = await asyncio.wrap_future(self.store.rows(stored_as, run.id, marks=True))
            with suppress(StoreDamaged):
                run.receipt.late.extend(late_outcomes(rows))


async def _seal(session: Session) -> None:
    """Acquire a session that a dead process held, which seals it, and release it."""
    at_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    at_once.set_result(None)
    lease = await session.open(at_once)
    if isinstance(lease, Lease):
        await asyncio.wrap_future(session.store.release(lease))


def _prompt(events: Sequence[Event]) -> str:
    for event in events:
        if isinstance(event, MessageAdded) and isinstance(event.message, UserMessage):
            return event.message.text
    return ""


def _entries(run_id: str, events: Sequence[Event]) -> tuple[LedgerEntry, ...]:
    """The ledger of a run, from its events. A request that a crash has cut was sent, and its usage is not known."""
    entries = [event.entry for event in events if isinstance(event, ModelCallEnded)]
    started = Counter((each.model, each.turn, each.attempt) for each in events if isinstance(each, ModelCallStarted))
    cut = started - Counter((entry.model, entry.turn, entry.attempt) for entry in entries)
    numbered = enumerate(cut.elements(), len(entries))
    return (*entries, *(LedgerEntry(f"{run_id}-cut-{number}", run_id, *request) for number, request in numbered))


def _receipt(record: RunRecord, entries: tuple[LedgerEntry, ...]) -> Receipt:
    """The stored receipt; after a crash, one with only what is known."""
    if record.status == "ended":
        try:
            return msgspec.json.decode(record.detail, type=Receipt)
        except msgspec.MsgspecError:
            pass  # a run whose last save failed was stored without one
    unknown: tuple[CallReceipt, ...] = ()
    with suppress(msgspec.MsgspecError):
        crash = msgspec.json.decode(record.detail, type=Crash)
        unknown = tuple(CallReceipt(call.id, call.name, Outcome.UNKNOWN, ok=False) for call in crash.unknown)
    return Receipt(
        run_id=record.run_id,
        stop_reason=cast("EndReason", record.reason or "crashed"),
        cause=None,
        mode=None,
        phase=Phase.ENDED,
        latency=None,
        calls=unknown,
        still_running=(),
        usage=summarise(entries),
    )
