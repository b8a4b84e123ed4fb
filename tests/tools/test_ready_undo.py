"""What `write_file` did can be taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent
from quiesce.testing import Call, ScriptedModel
from quiesce.tools.builtin import make_files

pytestmark = pytest.mark.promise("P4")


def test_written_files_are_put_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("before")
    _, write_file = make_files(str(tmp_path))
    calls = [
        Call("write_file", {"path": str(tmp_path / "old.txt"), "content": "after"}),
        Call("write_file", {"path": str(tmp_path / "new.txt"), "content": "made"}),
    ]

    async def main() -> None:
        result = await Agent(ScriptedModel(calls, "Written."), tools=[write_file]).invoke_async("Write")
        assert (tmp_path / "old.txt").read_text() == "after"
        assert (tmp_path / "new.txt").read_text() == "made"
        await result.undo()
        assert (tmp_path / "old.txt").read_text() == "before"
        assert not (tmp_path / "new.txt").exists()

    asyncio.run(main())
