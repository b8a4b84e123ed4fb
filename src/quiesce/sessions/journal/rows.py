"""The rows of a journal: events as bytes, from which a replay gives exactly the same events.

Consecutive pieces of the same text are joined into one row, so that a chunk costs next to nothing. A row has the number
of its first event and the lengths of its pieces, so that they can be separated again.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct

from ..._exact import base_value
from ...errors import StoreDamaged
from ...events import ChildEvent, Event, LateOutcomeRecorded, ReasoningDelta, TextDelta, ToolCallArguments
from ...messages import Message
from ...receipt import LateOutcome


class Commit(Struct, frozen=True, tag="commit"):
    """So many messages were added to the conversation. They stand for all rows before this one."""

    messages: int


class ToolIntended(Struct, frozen=True, tag="tool_intended"):
    """A tool is about to run. Saved before it does, so that after a crash it is known that it may have run."""

    call_id: str


class ValuesSaved(Struct, frozen=True, tag="undo_intended"):
    """Something is about to happen: named values that are saved with this row say what."""


JournalRow: TypeAlias = Event | Commit | ToolIntended | ValuesSaved

MARKS: Final = frozenset({Commit, ToolIntended, ValuesSaved})
"""The rows that are only for recovery, and not for readers."""

A_MARK: Final = 0
"""The number of a row that is only for recovery and not for readers."""

LATE_ROWS: Final = 1 << 40
"""The first index for rows that are added after a run's end, beyond those of batches that may still arrive."""


class Row(NamedTuple):
    """A row as it is stored.

    `number` is that of its first event, counted from 1 in the order of delivery; `A_MARK` for a row that is not for
    readers, and None in old rows, whose events have no numbers. `lengths` are those of the joined pieces, if any.
    """

    payload: bytes
    number: int | None = None
    lengths: bytes = b""


# --- Packing -------------------------------------------------------------------------------------------------------


def pack(entries: Sequence[JournalRow], first: int | None = None) -> list[Row]:
    """Entries as rows; `first` is the number of the first event among them.

    The usual case is fast: thousands of pieces of one text, with a few other entries before and after.
    """
    begin, end = 0, len(entries)
    while begin < end and entries[begin].__class__ is not TextDelta:
        begin += 1
    while begin < end and entries[end - 1].__class__ is not TextDelta:
        end -= 1
    text = cast("Sequence[TextDelta]", entries[begin:end])
    pieces = [each.text for each in text if each.__class__ is TextDelta]
    rows: list[Row] = []
    if not pieces or len(pieces) < len(text):
        _pack(rows, entries, first)
    else:
        number = _pack(rows, entries[:begin], first)
        number = _join(rows, TextDelta(""), pieces, number)
        _pack(rows, entries[end:], number)
    return rows


def _pack(rows: list[Row], entries: Iterable[JournalRow], number: int | None) -> int | None:
    """Add entries of any kinds. Returns the number of the event after them."""
    for kind, alike in itertools.groupby(entries, type):
        if kind is TextDelta:
            number = _join(rows, TextDelta(""), list(map(_text_of, alike)), number)
        elif kind in MARKS:
            rows.extend(Row(encode(mark), None if number is None else A_MARK) for mark in alike)
        elif kind in _JOINABLE:
            for _, pieces in itertools.groupby(alike, _joining_key):
                one, *others = pieces
                number = _join(rows, one, [_piece(each) for each in (one, *others)], number)
        else:
            for entry in alike:
                number = _add(rows, entry, number)
    return number


def _add(rows: list[Row], event: JournalRow, number: int | None) -> int | None:
    rows.append(Row(encode(event), number))
    return None if number is None else number + 1


def _join(rows: list[Row], like: Any, pieces: list[str], number: int | None) -> int | None:
    """Add pieces of one text as one row. Returns the number of the event after them."""
    if len(pieces) == 1:
        return _add(rows, _with_piece(like, pieces[0]), number)
    try:
        payload = _encoder.encode(_with_piece(like, "".join(pieces)))
    except UnicodeEncodeError:  # two halves of a character, written side by side, would be read as a whole one
        for piece in pieces:
            number = _add(rows, _with_piece(like, piece), number)
        return number
    rows.append(Row(payload, number, b"" if number is None else _lengths.encode(list(map(len, pieces)))))
    return None if number is None else number + len(pieces)


_JOINABLE: Final = frozenset({ReasoningDelta, ToolCallArguments, ChildEvent})
_text_of: Final = operator.attrgetter("text")


def _joining_key(event: Any) -> object:
    """A key that is equal for pieces of the same text, and unique for any other event."""
    match event:
        case TextDelta():
            return TextDelta
        case ReasoningDelta(_, None, None):
            return ReasoningDelta
        case ToolCallArguments(call_id):
            return ToolCallArguments, call_id
        case ChildEvent(call_id, run_id, inner):
            return call_id, run_id, _joining_key(inner)
        case _:
            return object()


def _piece(event: Any) -> str:
    match event:
        case TextDelta(text) | ReasoningDelta(text) | ToolCallArguments(_, text):
            return text
        case ChildEvent(_, _, inner):
            return _piece(inner)
        case _:
            return ""


def _with_piece(event: Any, piece: str) -> Any:
    match event:
        case TextDelta():
            return TextDelta(piece)
        case ReasoningDelta(_, None, None):
            return ReasoningDelta(piece)
        case ToolCallArguments(call_id):
            return ToolCallArguments(call_id, piece)
        case ChildEvent(call_id, run_id, inner):
            return ChildEvent(call_id, run_id, _with_piece(inner, piece))
        case _:
            return event


# --- Unpacking -----------------------------------------------------------------------------------------------------


def late_outcomes(rows: Iterable[Row]) -> list[LateOutcome]:
    """The outcomes of abandoned calls that were recorded after the end of the run."""
    marks = (decode_row(row.payload) for row in rows if row.number == A_MARK)
    return [mark.outcome for mark in marks if isinstance(mark, LateOutcomeRecorded)]


class NumberedEvent(NamedTuple):
    """An event with the number under which the run's readers got it."""

    number: int
    event: Event


def unpack(rows: Iterable[Row], after: int = 0) -> Iterator[NumberedEvent]:
    """The events after number `after`, piece by piece as they were delivered. Raises `StoreDamaged`.

    Old rows without numbers count as one event each.
    """
    last = 0
    for row in rows:
        if row.number == A_MARK:
            continue
        event = decode_row(row.payload)
        if isinstance(event, Commit | ToolIntended | ValuesSaved):
            continue
        number = last + 1 if row.number is None else row.number
        for each in _pieces(event, row.lengths) if row.lengths else (event,):
            if number > after:
                yield NumberedEvent(number, each)
            last, number = number, number + 1


def _pieces(event: Event, lengths: bytes) -> Iterator[Event]:
    try:
        ends = tuple(itertools.accumulate(_known_lengths.decode(lengths)))
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"A row of the journal cannot be taken apart: {error}.") from error
    text = _piece(event)
    if not ends or ends[-1] != len(text):
        raise StoreDamaged("A row of the journal is not as long as its pieces.")
    for begin, end in zip((0, *ends), ends, strict=False):
        yield _with_piece(event, text[begin:end])


# --- Encoding ------------------------------------------------------------------------------------------------------

# The longest `repr` that is stored for a value that JSON cannot express.
_LONGEST_REPR: Final = 1000


def _as_repr(value: Any) -> Any:
    """The `repr` of a value that JSON cannot express, such as the progress that a tool reports."""
    plain = base_value(value)
    return repr(value)[:_LONGEST_REPR] if plain is None else plain


_encoder: Final = msgspec.json.Encoder(enc_hook=_as_repr)
# Made when first needed: a decoder of all events takes several milliseconds to make.
_rows: Final = functools.cache(lambda: msgspec.json.Decoder[JournalRow](JournalRow))
_messages: Final = functools.cache(lambda: msgspec.json.Decoder[Message](Message))
_lengths: Final = msgspec.msgpack.Encoder()
_known_lengths: Final = msgspec.msgpack.Decoder(list[int])


def encode(value: object, *, halves: bool = True) -> bytes:
    """A value as JSON. Without `halves`, half a character becomes a question mark: not every reader takes it."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, ValueError, RecursionError):
        # Half of a character that a stream has split: ASCII JSON can express that.
        plain = msgspec.to_builtins(value, enc_hook=_as_repr)
        return json.dumps(plain, default=_as_repr, ensure_ascii=halves).encode(errors="replace")


def decode_row(data: bytes) -> JournalRow:
    """A row of the journal. Raises `StoreDamaged`."""
    try:
        return _rows().decode(data)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    try:
        return msgspec.convert(_with_present_tags(json.loads(data)), JournalRow)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreDamaged(f"A row of the journal cannot be read: {error}.") from error


# Tags of events that older stores have.
_RENAMED: Final = {"handed_over": "handed_off"}


def _with_present_tags(row: Any) -> Any:
    """A row, and the event of a child in it, with the present tag of its event."""
    match row:
        case {"type": str(tag), **rest} if tag in _RENAMED:
            return {"type": _RENAMED[tag], **rest}
        case {"type": _, "event": inner}:
            return {**row, "event": _with_present_tags(inner)}
        case _:
            return row


def decode_messages(payloads: Sequence[bytes]) -> tuple[Message, ...]:
    """Messages that `encode` has encoded. Raises `StoreDamaged`."""
    decode = _messages().decode
    try:
        return tuple([decode(data) for data in payloads])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreDamaged(f"A stored message cannot be read: {error}.") from error
