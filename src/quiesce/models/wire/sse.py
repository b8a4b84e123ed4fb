"""From the bytes of a stream to its events, in as few steps as it takes."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from ...errors import ModelProtocolError
from ...events import AnswerStart, Delta
from .counts import with_whole_counts
from .failures import Failures
from .json_values import as_dict, as_list

# What reading an event may raise.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

# No provider sends an event this long; a stream of garbage without line ends does.
LONGEST_EVENT: Final = 16 * 1024 * 1024


class Decoder(Protocol):
    """Takes the bytes of one answer as they arrive and gives back what they mean.

    `ended` turns true with the `AnswerEnd`, `done` once nothing more is expected.
    """

    ended: bool
    done: bool
    taken: list[Delta]
    """The deltas of the last `feed`, also when it raised."""

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete. Raises a `ModelError` for an error that the provider reports."""
        ...

    def finish(self) -> list[Delta]:
        """The stream has ended by itself: what is left in the buffer, if that is a whole event."""
        ...


class _BufferedDecoder:
    """Keeps the bytes of an event until the event is whole."""

    __slots__ = ("_failures", "_kept", "_size", "_started", "done", "ended", "taken")

    def __init__(self, failures: Failures) -> None:
        self.ended = False
        self.done = False
        self.taken: list[Delta] = []
        self._failures: Final = failures
        self._started = False
        self._kept: list[bytes] = []
        self._size = 0

    def _start(self, answer_id: str | None, model: str | None, into: list[Delta]) -> None:
        """Append the `AnswerStart`, once."""
        if not self._started:
            self._started = True
            into.append(AnswerStart(answer_id, model))

    def _take_last(self, rest: bytes, into: list[Delta]) -> None:
        """What is left at the end of the stream, and may be a whole event."""
        raise NotImplementedError

    def _join(self, data: bytes, end: bytes, what: str) -> bytes | None:
        """The bytes that were kept, and these; None while they do not end an event: then they are kept as well.

        Kept bytes are not copied or searched again with each read: an event may be long.
        """
        if end not in data and not (len(end) > 1 and data[:1] == end[:1] == self._kept[-1][-1:]):
            if data:
                self._kept.append(data)
            self._check_size(self._size + len(data), what)
            return None
        return b"".join((*self._kept, data))

    def _keep(self, rest: bytes, what: str) -> None:
        self._kept = [rest] if rest else []
        self._check_size(len(rest), what)

    def _check_size(self, size: int, what: str) -> None:
        self._size = size
        if size > LONGEST_EVENT:
            raise ModelProtocolError(f"The provider sent {what} that has no end.")

    def finish(self) -> list[Delta]:
        """What is left, when the last event lacks its end."""
        into: list[Delta] = []
        rest, self._kept = b"".join(self._kept), []
        if rest.strip():
            try:
                self._take_last(rest, into)
            except ModelProtocolError:  # it was cut; the missing end of the answer is reported by the run
                return []
        return into


class EventStreamDecoder(_BufferedDecoder):
    """Server-sent events. A provider's decoder says in `take` what one event means.

    Follows the WHATWG rules: any line ending, comments, several `data` lines. One event on one `data: ` line, which is
    what providers send, takes the short way.
    """

    __slots__ = ("_after_return",)

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self._after_return = False

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        """Append what an event means."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete."""
        into: list[Delta] = []
        self.taken = into
        if b"\r" in data or self._after_return:
            data = self._plain_line_ends(data)
        if self._kept:
            joined = self._join(data, b"\n\n", "an event")
            if joined is None:
                return into
            data = joined
        elif data[:6] == b"data: " and data.find(b"\n") == len(data) - 2 > 6 and data[-1] == 10:
            self.take(b"", data[6:-2], into)  # one whole event, as most providers write them
            return into
        events = data.split(b"\n\n")
        self._keep(events.pop(), "an event")
        for event in events:
            if event.startswith(b"data: ") and b"\n" not in event and len(event) > 6:
                self.take(b"", event[6:], into)
            else:
                self._take_lines(event, into)
        return into

    def take_whole(self, whole: dict[str, Any], into: list[Delta]) -> None:
        """Append what a whole answer means, which some servers send instead of a stream."""
        raise NotImplementedError

    def _take_last(self, rest: bytes, into: list[Delta]) -> None:
        self._take_lines(rest, into)

    def _take_json(self, text: bytes, into: list[Delta]) -> None:
        try:
            found = msgspec.json.decode(text)
        except UNREADABLE as error:
            return self._take_json(readable(self._failures.label, text, error), into)
        for each in map(as_dict, as_list(found) or [found]):
            if each.get("error"):
                raise self._failures.of_error_object(each["error"])
            try:
                self.take_whole(each, into)
            except (KeyError, TypeError, AttributeError) as error:
                raise unreadable_event(self._failures.label, text, error) from None
        return None

    def _take_lines(self, event: bytes, into: list[Delta]) -> None:
        name = b""
        data: list[bytes] = []
        for line in event.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
        if any(data):
            self.take(name, b"\n".join(data), into)
        elif not data and event.lstrip()[:1] in (b"{", b"["):
            self._take_json(event, into)

    def _plain_line_ends(self, data: bytes) -> bytes:
        """Lines may end in CR LF or CR as well, and a CR LF may be split between two reads."""
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class LineDecoder(_BufferedDecoder):
    """One JSON value on each line."""

    def take(self, line: bytes, into: list[Delta]) -> None:
        """Decode one line and append its deltas to `into`."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete."""
        into: list[Delta] = []
        self.taken = into
        whole = self._join(data, b"\n", "a line") if self._kept else data
        if whole is None:
            return into
        lines = whole.split(b"\n")
        self._keep(lines.pop(), "a line")
        for line in lines:
            if line and not line.isspace():
                self.take(line, into)
        return into

    def _take_last(self, rest: bytes, into: list[Delta]) -> None:
        self.take(rest, into)


def readable(label: str, data: bytes, error: Exception) -> bytes:
    """An event that could not be read because of its token counts, so that it can. Raises `ModelProtocolError`."""
    found = with_whole_counts(data, label)
    if found is None:
        raise unreadable_event(label, data, error) from None
    return found


def unreadable_event(label: str, data: bytes, error: Exception) -> ModelProtocolError:
    """The error for an event that cannot be read. It shows the beginning, which holds no secret of the user."""
    shown = data[:80].decode("utf-8", "replace")
    why = "its JSON is nested too deeply" if isinstance(error, RecursionError) else error
    return ModelProtocolError(f"{label} sent an event that cannot be read ({why}): {shown!r}.")
