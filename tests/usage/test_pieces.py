"""A text in pieces reads the same from every piece on, however many groups have been joined."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.usage.estimate.pieces import GROUP, Pieces

pytestmark = pytest.mark.promise("P6")


@settings(max_examples=40)
@given(count=st.integers(0, 3 * GROUP + 5), joined_late=st.integers(0, GROUP), data=st.data())
def test_text_from_any_piece(count: int, joined_late: int, data: st.DataObject) -> None:
    pieces, plain = Pieces(), [f"{number}," for number in range(count)]
    for number, piece in enumerate(plain, 1):
        pieces.append(piece)
        if number % GROUP == joined_late % GROUP:
            pieces.join_group()
    first = data.draw(st.integers(0, count + 2))
    assert pieces.text(first) == "".join(plain[first:])
    assert pieces == plain
