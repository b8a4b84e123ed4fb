"""The runs of a fleet, for a replica of the server: which run is meant, and how clients see it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ..errors import ConfigurationError, SessionNotFound
from ..events import (
    Event,
    InterruptAnswered,
    InterruptRaised,
    ModelCallStarted,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from ..fleet.client import Fleet
from ..fleet.records import FleetRun
from ..interrupts import AnswerRecord, Interrupt
from ..phases import Phase
from ..run.undo import undoable_tools
from ..sessions import Session, SessionStore
from ..sessions.stored_receipt import journaled_entries
from ..usage.ledger import LedgerEntry, summarise
from .problems import no_such_run
from .run_metadata import PROMPT_LENGTH, TEXT_TAIL_LENGTH
from .schemas import RunView, usage_view

# Runs whose events are remembered in short, so that only newer ones are read for the next view.
_MAX_DIGESTS: Final = 2000


class RunDigest:
    """What a view shows of a run's events."""

    def __init__(self) -> None:
        self.last = 0
        self.text_tail = ""
        self.task = ""
        self.running_tools: Final[dict[str, str]] = {}
        self.asked: Final[dict[str, Interrupt]] = {}
        self.answers: Final[list[AnswerRecord]] = []
        self.phase = Phase.CREATED
        self._calls: Final[list[Event]] = []

    def add(self, number: int, event: Event) -> None:
        """Take an event in."""
        self.last = number
        match event:
            case TextDelta(text):
                self.text_tail, self.phase = (self.text_tail + text)[-TEXT_TAIL_LENGTH:], Phase.STREAMING
            case RunStarted(task=task):
                self.task = task
            case ModelCallStarted():
                self.phase = Phase.CALLING
                self._calls.append(event)
            case ToolStarted(call):
                self.running_tools[call.id], self.phase = call.name, Phase.ACTING
            case ToolEnded(result):
                self.running_tools.pop(result.call_id, None)
            case InterruptRaised(interrupt):
                self.asked[interrupt.id] = interrupt
            case InterruptAnswered(record):
                self.answers.append(record)
            case _:
                if str(event.__struct_config__.tag) == "model_call_ended":
                    self._calls.append(event)

    def entries(self, run_id: str) -> tuple[LedgerEntry, ...]:
        """The model calls so far. One that goes on has no figures yet."""
        return journaled_entries(run_id, self._calls)


class FleetService:
    """A replica's connection to the fleet. Only for the server's own loop."""

    def __init__(self, url: object, store: SessionStore) -> None:
        if not isinstance(url, str):
            raise ConfigurationError("A fleet needs Postgres.", todo="Use store='postgresql://...'.")
        self.fleet: Final = Fleet(url, store)
        self.store: Final = store
        self.closing: Final = asyncio.Event()
        """Set when the replica shuts down: its streams end, and clients go on reading at another replica."""
        self._digests: Final[OrderedDict[str, RunDigest]] = OrderedDict()

    async def get(self, owner: str, run_id: str) -> FleetRun:
        """One run of an owner. Raises `Problem` when there is none with that id."""
        run = await self.fleet.find(run_id)
        if run is None or run.owner != owner:
            raise no_such_run()
        return run

    async def digest(self, run: FleetRun) -> RunDigest:
        """The run's events in short, up to now."""
        digest = self._digests.pop(run.id, None) or RunDigest()
        self._digests[run.id] = digest
        while len(self._digests) > _MAX_DIGESTS:
            self._digests.popitem(last=False)
        with suppress(SessionNotFound):
            for number, event in await Session(run.session, self.store).events(run.id, after=digest.last):
                if number > digest.last:  # another request may have read it meanwhile
                    digest.add(number, event)
        return digest

    async def session(self, run: FleetRun) -> Session:
        """The session of a run, as it is stored now."""
        session = Session(run.session, self.store)
        with suppress(SessionNotFound):
            await session.load()
        return session

    async def views(self, runs: Sequence[FleetRun]) -> tuple[RunView, ...]:
        """Runs as clients see them."""
        return tuple([await self.view(run) for run in runs])

    async def view(self, run: FleetRun, session: Session | None = None) -> RunView:
        """A run as clients see it."""
        digest = await self.digest(run)
        receipt = run.receipt
        if session is None and run.reason == "interrupt":
            session = await self.session(run)
        asked = () if session is None else tuple(each for each in session.interrupts if each.id in digest.asked)
        usage = summarise(digest.entries(run.id)) if receipt is None else receipt.usage
        prompt = run.prompt
        stopping = run.state == "running" and bool(run.stop)
        return RunView(
            id=run.id,
            agent=run.agent,
            session=run.label,
            state="stopping" if stopping else run.state,
            phase=Phase.WAITING if run.state == "queued" else digest.phase if run.is_active else Phase.ENDED,
            stop_reason=run.reason or None,
            prompt="" if prompt is None else prompt.text[:PROMPT_LENGTH],
            created_at=run.created,
            ended_at=run.ended,
            mode=None if receipt is None else receipt.mode,
            cause=None if receipt is None else receipt.cause,
            waiting_for=tuple(digest.running_tools.values()) if stopping else (),
            interrupts=asked if not run.is_active else (),
            usage=usage_view(usage),
            text_tail=digest.text_tail,
            last_event=digest.last,
            undoable=() if session is None or run.is_active else undoable_tools(session, run.id),
            task=digest.task,
            continued_from=run.continued_from,
            restarted_as=run.restarted_as,
            answers=tuple(digest.answers),
        )
