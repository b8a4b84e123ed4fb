"""Runs that outlive the process: what a store has of earlier ones, brought to rest and shown again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from ..agent import Agent
from ..cancellation import Mode
from ..errors import StoreDamaged, StoreError
from ..events import Event, MessageAdded, ModelCallEnded, RunEnded, TextDelta
from ..interrupts import Interrupt
from ..messages import Message, Outcome, UserMessage
from ..phases import Phase
from ..receipt import CallReceipt, Receipt
from ..sessions import Session, Store
from ..sessions.journal.recovery import Crash
from ..sessions.journal.rows import NumberedEvent, late_outcomes
from ..sessions.records import Lease, RunRecord
from ..usage.ledger import LedgerEntry, summarise
from .schemas import RunState, RunView, usage_view
from .settings import OnDisconnect
from .stored_log import StoredEvents, StoredLog

_log: Final = logging.getLogger("quiesce.server")
_HEAD: Final = 200
_TAIL: Final = 200


def stored_name(owner: str, session: str) -> str:
    """What a session is called in the store: each key has names of its own."""
    return f"{quote(owner, safe='@')}/{session}"


def owner_and_name(stored: str) -> tuple[str, str] | None:
    """Whose a stored session is and what they call it; None for one that no server made."""
    owner, slash, name = stored.partition("/")
    return (unquote(owner), name) if slash and owner and name else None


class StoredRun:
    """A run of an earlier process. It has ended, or crashed and was brought to rest when the store was opened again."""

    run = None
    result = None

    def __init__(
        self,
        stored: RunRecord,
        numbered: Sequence[NumberedEvent],
        session: Session,
        *,
        owner: str,
        name: str,
        agent: Agent,
        is_last: bool,
    ) -> None:
        events = [each.event for each in numbered]
        self.id: Final = stored.run_id
        self.owner: Final = owner
        self.agent: Final = agent
        self.session: Final = name
        self.created_at: Final = stored.started
        self.ended_at: Final = stored.ended or stored.started
        self.entries: Final = tuple(event.entry for event in events if isinstance(event, ModelCallEnded))
        self.receipt: Final = _receipt(stored, self.entries)
        self.state: Final[RunState] = "ended" if stored.status == "ended" else "crashed"
        self.readers = 0
        self.on_disconnect: Final[OnDisconnect] = "continue"
        self.mode: Final = Mode.NOW
        self._messages: Final = session.messages if is_last else ()
        self.conversation: Final = session
        self.prompt: Final = _prompt(events)[:_HEAD]
        self._tail: Final = "".join(event.text for event in events if isinstance(event, TextDelta))[-_TAIL:]
        end = RunEnded(self.receipt.stop_reason, self.receipt)
        self.log: Final = StoredLog(StoredEvents(session, stored.run_id), numbered, end)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation of the run's session."""
        return self.conversation.messages

    def view(self) -> RunView:
        """The run at a glance."""
        return RunView(
            id=self.id,
            agent=self.agent.name,
            session=self.session,
            state=self.state,
            phase=Phase.ENDED,
            stop_reason=self.receipt.stop_reason,
            prompt=self.prompt,
            created_at=self.created_at,
            ended_at=self.ended_at,
            mode=self.receipt.mode,
            cause=self.receipt.cause,
            waiting_for=(),
            interrupts=self.interrupts,
            usage=usage_view(summarise(self.entries)),
            text_tail=self._tail,
            last_event=self.log.last,
        )

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What waits for an answer in the session, after its last run."""
        return self.conversation.interrupts if self.receipt.stop_reason == "interrupt" else ()

    def cancel_questions(self) -> bool:
        """A stop of a run that waits for a person: it is no longer asked."""
        return bool(self.interrupts) and bool(self.conversation.cancel_pending(self.agent.config.cut_note))

    @property
    def has_moved_on(self) -> bool:
        """Whether something was said in the session after this run, as far as is known."""
        return self.conversation.messages != self._messages

    def reader_came(self) -> None:
        """Somebody reads the stored events."""
        self.readers += 1

    def reader_left(self) -> None:
        """One reader less."""
        self.readers -= 1


class StoredRuns:
    """The sessions and runs that a store has of servers before this one."""

    def __init__(self, store: Store) -> None:
        self.store: Final = store

    async def restore(
        self, agents: dict[str, Agent], most: int
    ) -> list[tuple[str, str, Agent, Session, list[StoredRun]]]:
        """Owner, name, agent, session and runs of what is stored for these agents, the oldest first.

        What a crash left is sealed. A session that another living process has is left to it.
        """
        found: list[tuple[str, str, Agent, Session, list[StoredRun]]] = []
        infos = await asyncio.wrap_future(self.store.sessions())
        for info in reversed(infos[:most]):
            whose = owner_and_name(info.name)
            if whose is None:
                continue
            try:
                restored = await self._restore_one(info.name, *whose, agents)
            except StoreError as error:
                _log.warning("session %s is left alone: %s", info.name, error)
                continue
            if restored is not None:
                found.append((*whose, *restored))
        return found

    async def _restore_one(
        self, stored_as: str, owner: str, name: str, agents: dict[str, Agent]
    ) -> tuple[Agent, Session, list[StoredRun]] | None:
        session = Session(stored_as, self.store)
        runs = await asyncio.wrap_future(self.store.runs(stored_as))
        try:
            if any(run.status == "running" for run in runs):
                await _bring_to_rest(session)
                runs = await asyncio.wrap_future(self.store.runs(stored_as))
            else:
                await session.load()
        except StoreDamaged as error:
            _log.warning("session %s is shown up to its damage: %s", stored_as, error)
            await session.load()
        agent = agents.get(runs[-1].agent) if runs else None
        if agent is None:
            return None
        past = [
            StoredRun(
                run,
                await StoredEvents(session, run.run_id).after(0, most=None),
                session,
                owner=owner,
                name=name,
                agent=agent,
                is_last=run is runs[-1],
            )
            for run in runs
        ]
        for each in past:
            await self._add_late(stored_as, each)
        return agent, session, past

    async def _add_late(self, stored_as: str, run: StoredRun) -> None:
        """What became of calls that had been given up may have been written down after the receipt."""
        if any(call.outcome is Outcome.ABANDONED for call in run.receipt.calls):
            rows = await asyncio.wrap_future(self.store.rows(stored_as, run.id, marks=True))
            with suppress(StoreDamaged):
                run.receipt.late.extend(late_outcomes(rows))


async def _bring_to_rest(session: Session) -> None:
    """Take a session that a dead process had, which seals what it left, and give it back."""
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


def _receipt(stored: RunRecord, entries: tuple[LedgerEntry, ...]) -> Receipt:
    """The receipt that was stored, or after a crash what can truly be said."""
    if stored.status == "ended":
        try:
            return msgspec.json.decode(stored.detail, type=Receipt)
        except msgspec.MsgspecError:
            pass  # one that was saved late has none
    unknown: tuple[CallReceipt, ...] = ()
    with suppress(msgspec.MsgspecError):
        crash = msgspec.json.decode(stored.detail, type=Crash)
        unknown = tuple(CallReceipt(call.id, call.name, Outcome.UNKNOWN, ok=False) for call in crash.unknown)
    return Receipt(
        run_id=stored.run_id,
        stop_reason=stored.reason or "crashed",
        cause=None,
        mode=None,
        phase=Phase.ENDED,
        latency=None,
        calls=unknown,
        still_running=(),
        usage=summarise(entries),
    )
