"""How a run ended, from its journal: the receipt, and whether what it was given is in the conversation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..errors import SessionNotFound
from ..events import Event, ModelCallEnded, ModelCallStarted
from ..messages import Outcome
from ..phases import Phase
from ..receipt import CallReceipt, Receipt
from ..sessions import SessionStore
from ..sessions.journal.recovery import Crash
from ..sessions.journal.rows import Commit, decode_row, unpack
from ..sessions.records import RunRecord
from ..usage.ledger import LedgerEntry, summarise
from .records import FleetRun


async def journaled(store: SessionStore, run: FleetRun) -> RunRecord | None:
    """The record of a run; None while nothing of it is stored."""
    with suppress(SessionNotFound):
        for record in await asyncio.wrap_future(store.runs(run.session)):
            if record.run_id == run.id:
                return record
    return None


async def receipt_of(store: SessionStore, run: FleetRun, record: RunRecord) -> Receipt:
    """The receipt of a run that has ended; of one that crashed, what is known."""
    if record.status == "ended":
        found = msgspec.json.decode(record.detail, type=Receipt | None)
        if found is not None:
            return found
    rows = await asyncio.wrap_future(store.rows(run.session, run.id))
    entries = journaled_entries(run.id, [each.event for each in unpack(rows)])
    crash = msgspec.json.decode(record.detail, type=Crash | None) if record.status == "crashed" else None
    unknown = () if crash is None else crash.unknown
    reason: Any = record.reason or "crashed"
    return Receipt(
        run_id=run.id,
        stop_reason=reason,
        cause=None,
        mode=None,
        phase=Phase.ENDED,
        latency=None,
        calls=tuple(CallReceipt(call.id, call.name, Outcome.UNKNOWN, ok=False) for call in unknown),
        still_running=(),
        usage=summarise(entries),
    )


def journaled_entries(run_id: str, events: Sequence[Event]) -> tuple[LedgerEntry, ...]:
    """The ledger of a run, from its events. A request that a crash has cut was sent, and its usage is not known."""
    entries = [event.entry for event in events if isinstance(event, ModelCallEnded)]
    started = Counter((each.model, each.turn, each.attempt) for each in events if isinstance(each, ModelCallStarted))
    cut = started - Counter((entry.model, entry.turn, entry.attempt) for entry in entries)
    numbered = enumerate(cut.elements(), len(entries))
    return (*entries, *(LedgerEntry(f"{run_id}-cut-{number}", run_id, *request) for number, request in numbered))


async def has_committed(store: SessionStore, run: FleetRun) -> bool:
    """Whether what the run was given is in the conversation: its journal has a commit."""
    rows = await asyncio.wrap_future(store.rows(run.session, run.id, marks=True))
    return any(isinstance(decode_row(row.payload), Commit) for row in rows)
