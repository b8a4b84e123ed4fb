"""Files that hold conversations are for their owner only."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from quiesce import Agent, Session
from quiesce.models.scripted import ScriptedModel
from quiesce.sessions.stores.sqlite import SQLiteStore


@pytest.mark.feature
@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
def test_a_new_store_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = SQLiteStore(tmp_path / "new" / "sessions.db")
        Agent(ScriptedModel("Yes."), session=Session("s", store=store))("Go.")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
        store.close().result()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
