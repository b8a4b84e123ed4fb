"""What is stored of one session, in memory: the rules of all stores in their simplest form.

Every change is a record. The records of a session, applied in order, give its content again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, structs

from ...errors import StoreDamaged
from ..journal.rows import A_MARK, LATE_ROWS, Row
from ..records import RunBegin, RunEnd, RunRecord, WriteBatch, up_to_gap


class Created(Struct, frozen=True, tag="created"):
    """A session was made."""

    id: str
    at: float


class Written(Struct, frozen=True, tag="written", omit_defaults=True):
    """A batch was written. `messages` is None when the conversation stays as it is."""

    run_id: str
    at: float
    first_row: int = 0
    rows: list[Row] = []
    first_message: int = 0
    messages: list[bytes] | None = None
    values: dict[str, bytes] = {}
    begin: RunBegin | None = None
    end: RunEnd | None = None


class AddedLate(Struct, frozen=True, tag="late"):
    """A row was added to a run's journal after the end of the run."""

    run_id: str
    payload: bytes


class RunDeleted(Struct, frozen=True, tag="run deleted"):
    """A run was deleted, with its journal."""

    run_id: str


Record: TypeAlias = Created | Written | AddedLate | RunDeleted

_decoder: Final[msgspec.msgpack.Decoder[Record]] = msgspec.msgpack.Decoder(Record)
encode_record: Final = msgspec.msgpack.Encoder().encode


def decode_record(data: bytes) -> Record:
    """A record from what `encode_record` made of it. Raises `StoreDamaged`."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreDamaged(f"A record of a session cannot be read: {error}.") from error


def as_record(batch: WriteBatch, now: float) -> Written:
    """A batch as a record."""
    messages = batch.payloads() if batch.rewrites else None
    return Written(
        *(batch.run_id, now, batch.first_row, batch.rows(), batch.first_message, messages),
        *(dict(batch.values), batch.begin, batch.end),
    )


class SessionContent:
    """The conversation, the runs with their journals, and the named values of a session."""

    def __init__(self, created: Created) -> None:
        self.created: Final = created
        self.updated = created.at
        self.revision = 0
        self.records = 1
        self.values: Final[dict[str, bytes]] = {}
        self._messages: dict[int, bytes] = {}
        self._runs: Final[dict[str, RunRecord]] = {}
        self._journal: Final[dict[str, dict[int, Row]]] = {}

    # --- Changing -----------------------------------------------------------------------------------------------

    def holds(self, record: Record) -> bool:
        """Whether a record is applied already. To apply it again would undo later ones."""
        match record:
            case Written(run_id, rows=[_, *_]):
                return record.first_row in self._journal.get(run_id, {})
            case Written(run_id, end=RunEnd()):
                return run_id in self._runs and self._runs[run_id].status != "running"
            case AddedLate(run_id, payload):
                return any(row.payload == payload for row in self._journal.get(run_id, {}).values())
            case RunDeleted(run_id):
                return not self.has_run(run_id) or self._runs[run_id].status == "running"
            case _:
                return False

    def apply(self, record: Record) -> None:
        """Change the content by a record."""
        self.records += 1
        match record:
            case Written():
                self._write(record)
            case AddedLate(run_id, payload):
                rows = self._journal.setdefault(run_id, {})
                rows[max((LATE_ROWS, *rows)) + 1] = Row(payload, A_MARK)
            case RunDeleted(run_id):
                self._runs.pop(run_id, None)
                self._journal.pop(run_id, None)
            case Created():
                raise StoreDamaged("A session was made twice.")

    def _write(self, written: Written) -> None:
        run_id, begin, end = written.run_id, written.begin, written.end
        self.revision, self.updated = self.revision + 1, written.at
        self._journal.setdefault(run_id, {}).update(enumerate(written.rows, written.first_row))
        if written.messages is not None:
            self._messages = {at: self._messages[at] for at in self._messages if at < written.first_message}
            self._messages.update(enumerate(written.messages, written.first_message))
        self.values.update(written.values)
        if begin is not None:
            self._runs.setdefault(run_id, RunRecord(run_id, begin.agent, begin.started, "running"))
        if end is not None and run_id in self._runs:
            self._runs[run_id] = structs.replace(
                self._runs[run_id], status=end.status, reason=end.reason, ended=end.ended, detail=end.detail
            )

    # --- Reading ------------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """How many messages the conversation has."""
        return len(self._messages)

    def messages(self) -> tuple[int, list[bytes]]:
        """See `up_to_gap`."""
        return up_to_gap(sorted(self._messages.items()))

    def runs(self) -> list[RunRecord]:
        """The runs, in order."""
        return sorted(self._runs.values(), key=lambda run: (run.started, run.run_id))

    def has_run(self, run_id: str) -> bool:
        """Whether there is such a run."""
        return run_id in self._runs

    def unfinished(self) -> dict[str, list[bytes]]:
        """The journals of the runs that have not ended."""
        running = [run.run_id for run in self.runs() if run.status == "running"]
        return {run_id: [row.payload for row in self._rows(run_id)] for run_id in running}

    def rows(self, run_id: str, after: int, most: int | None, *, marks: bool) -> list[Row]:
        """See `SessionStore.rows`."""
        found = self._rows(run_id)
        started = [at for at, row in enumerate(found) if row.number and row.number <= after + 1]
        found = found[started[-1] if started and after else 0 :]
        found = [row for row in found if marks or row.number != A_MARK]
        return found if most is None else found[: most + 1]

    def _rows(self, run_id: str) -> list[Row]:
        return [row for _, row in sorted(self._journal.get(run_id, {}).items())]
