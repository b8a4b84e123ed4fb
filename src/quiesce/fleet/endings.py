"""How a run ended, from its journal: the receipt, and whether what it was given is in the conversation."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..errors import SessionNotFound, StoreDamaged
from ..events import Event
from ..receipt import Receipt
from ..sessions import SessionStore, stored_receipt
from ..sessions.journal.rows import Commit, decode_row, unpack
from ..sessions.records import RunRecord
from .records import FleetRun


async def journaled(store: SessionStore, run: FleetRun) -> RunRecord | None:
    """The record of a run; None while nothing of it is stored."""
    with suppress(SessionNotFound):
        for record in await asyncio.wrap_future(store.runs(run.session)):
            if record.run_id == run.id:
                return record
    return None


async def receipt_of(store: SessionStore, run: FleetRun, record: RunRecord) -> Receipt:
    """The receipt of a run that has ended; of one that crashed, what is known: its events up to the first damage."""
    rows = await asyncio.wrap_future(store.rows(run.session, run.id))
    events: list[Event] = []
    with suppress(StoreDamaged):
        events.extend(each.event for each in unpack(rows))
    return stored_receipt.receipt_of(record, events)


async def has_committed(store: SessionStore, run: FleetRun) -> bool:
    """Whether what the run was given is in the conversation: its journal has a commit."""
    rows = await asyncio.wrap_future(store.rows(run.session, run.id, marks=True))
    return any(isinstance(decode_row(row.payload), Commit) for row in rows)
