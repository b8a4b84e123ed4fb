"""The table of events is the one that the classes give."""

from __future__ import annotations

import pytest

from tools import event_table

pytestmark = pytest.mark.house


def test_the_page_has_every_event() -> None:
    page = event_table.PAGE.read_text()
    assert event_table.BEGIN in page
    assert event_table.filled(page) == page, "run: python tools/event_table.py"
