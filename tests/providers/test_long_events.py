"""An event that comes in many reads: it is put together once, wherever it is cut."""

from __future__ import annotations

import itertools
import time

import pytest

from quiesce.errors import ModelProtocolError
from quiesce.events import Delta
from quiesce.models.wire.failures import Failures
from quiesce.models.wire.sse import EventStreamDecoder, LineDecoder

pytestmark = pytest.mark.promise("P3")


class Events(EventStreamDecoder):
    def __init__(self) -> None:
        super().__init__(Failures("test"))
        self.seen: list[bytes] = []

    def take(self, name: bytes, data: bytes, into: list[Delta]) -> None:
        self.seen.append(name + b"|" + data)


class Lines(LineDecoder):
    def __init__(self) -> None:
        super().__init__(Failures("test"))
        self.seen: list[bytes] = []

    def take(self, line: bytes, into: list[Delta]) -> None:
        self.seen.append(line)


EVENTS = b"data: one\n\nevent: a\ndata: two\n\n\ndata: three\r\n\r\n: comment\n\ndata: four\n\n"
LINES = b"one\n\ntwo\r\n three\nfour\n"


@pytest.mark.parametrize(("kind", "text"), [(Events, EVENTS), (Lines, LINES)])
def test_every_two_cuts_and_empty_reads_give_the_same(kind: type[Events | Lines], text: bytes) -> None:
    whole = kind()
    whole.feed(text)
    assert len(whole.seen) == 4
    for first, second in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        cut = kind()
        for part in (text[:first], b"", text[first:second], b"", text[second:]):
            cut.feed(part)
        cut.finish()
        assert cut.seen == whole.seen, (first, second)


@pytest.mark.promise("P1")
def test_the_work_for_a_long_event_grows_with_its_length_alone() -> None:
    """In CPU time, as a ratio: four times the length took sixteen times as long when each read copied all before it."""

    def seconds(size: int) -> float:
        decoder = Events()
        began = time.process_time()
        decoder.feed(b"data: ")
        for _ in range(size // 1_000):
            decoder.feed(b"x" * 1_000)
        decoder.feed(b"\n\n")
        assert len(decoder.seen[0]) == size + 1
        return time.process_time() - began

    short = min(seconds(2_000_000) for _ in range(3))
    assert min(seconds(8_000_000) for _ in range(3)) < 9 * short


def test_an_event_without_an_end_is_refused() -> None:
    decoder = Events()
    with pytest.raises(ModelProtocolError, match="no end"):
        for _ in range(100):
            decoder.feed(b"x" * 1_000_000)
