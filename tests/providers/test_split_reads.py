"""What an answer means does not depend on how its bytes are cut into reads: the same deltas for any cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from quiesce.errors import ModelError
from quiesce.events import Delta
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest

from .recordings import PROVIDERS, Recording
from .recordings.endings import ENDINGS

pytestmark = pytest.mark.promise("P3")
ASKED = ModelRequest((UserMessage((Text("What colour?"),)),))
KINDS = ("answer", "calls", "reasoning")
RECORDINGS: dict[str, tuple[Any, Recording]] = {
    **{f"{each}: {kind}": (each.make, getattr(each, kind)) for each in PROVIDERS for kind in KINDS},
    **{str(each): (each.model, each.recording) for each in ENDINGS},
}


def read(model: Any, reads: Iterable[bytes]) -> tuple[list[Delta], type[ModelError] | None]:
    """The deltas of these reads, and the error that ended them."""
    decoder = model._decoder(ASKED)
    found: list[Delta] = []
    try:
        for data in reads:
            found += decoder.feed(data)
        found += decoder.finish()
    except ModelError as error:
        return found + decoder.taken, type(error)
    return found, None


def check(name: str, stride: int) -> int:
    make, recording = RECORDINGS[name]
    model = make("http://127.0.0.1:9")
    body = b"".join(recording.events)
    whole = read(model, [body])
    places = range(1, len(body), stride)
    for place in places:
        assert read(model, [body[:place], body[place:]]) == whole, place
    assert read(model, [body[at : at + 1] for at in range(len(body))]) == whole
    return len(places)


@pytest.mark.parametrize("name", RECORDINGS)
def test_an_answer_in_two_reads(name: str) -> None:
    check(name, 29)


@pytest.mark.proof
@pytest.mark.parametrize("name", RECORDINGS)
def test_an_answer_in_two_reads_cut_at_every_byte(name: str) -> None:
    check(name, 1)


@pytest.mark.parametrize(
    "provider", [each for each in PROVIDERS if each.answer.events[0].startswith((b"data", b"event"))], ids=str
)
@pytest.mark.parametrize("empty", [b"data:\n\n", b"data: \n\n", b"event: ping\ndata:\n\n"])
def test_an_event_without_data_means_nothing(provider: Any, empty: bytes) -> None:
    model = provider.make("http://127.0.0.1:9")
    events = provider.answer.events
    assert read(model, [events[0], empty, *events[1:]]) == read(model, events)
    assert read(model, [b"".join((events[0], empty, *events[1:]))]) == read(model, events)
