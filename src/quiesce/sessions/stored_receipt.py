"""The receipt and the ledger of a run, from what its store has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import msgspec

from ..events import Event, ModelCallEnded, ModelCallStarted
from ..messages import Outcome
from ..phases import Phase
from ..receipt import CallReceipt, EndReason, Receipt
from ..usage.ledger import LedgerEntry, summarise
from .journal.recovery import Crash
from .records import RunRecord


def saved_receipt(record: RunRecord) -> Receipt | None:
    """The stored receipt; None after a crash, and for a run whose last save failed."""
    with suppress(msgspec.MsgspecError, UnicodeError):
        return msgspec.json.decode(record.detail, type=Receipt | None) if record.status == "ended" else None
    return None


def receipt_of(record: RunRecord, events: Sequence[Event]) -> Receipt:
    """The stored receipt; after a crash, one with only what is known. `events` are those of the run's journal."""
    saved = saved_receipt(record)
    if saved is not None:
        return saved
    unknown: tuple[CallReceipt, ...] = ()
    with suppress(msgspec.MsgspecError, UnicodeError):
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
        usage=summarise(journaled_entries(record.run_id, events)),
    )


def journaled_entries(run_id: str, events: Sequence[Event]) -> tuple[LedgerEntry, ...]:
    """The ledger of a run, from its events. A request that a crash has cut was sent, and its usage is not known."""
    entries = [event.entry for event in events if isinstance(event, ModelCallEnded)]
    started = Counter((each.model, each.turn, each.attempt) for each in events if isinstance(each, ModelCallStarted))
    cut = started - Counter((entry.model, entry.turn, entry.attempt) for entry in entries)
    numbered = enumerate(cut.elements(), len(entries))
    return (*entries, *(LedgerEntry(f"{run_id}-cut-{number}", run_id, *request) for number, request in numbered))


# Here, and not in two threads at once when they are first used, which ends the process.
for _kind in (Receipt, Crash):
    msgspec.json.Decoder(_kind)
