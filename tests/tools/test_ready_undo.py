"""What `write_file` did can be taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent
from quiesce.receipt import Undone
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


@pytest.mark.parametrize("since", ["changed", "removed"])
@pytest.mark.parametrize("there_before", [False, True])
def test_what_was_changed_since_is_left(tmp_path: Path, since: str, there_before: bool) -> None:
    file = tmp_path / "file.txt"
    if there_before:
        file.write_text("before")
    _, write_file = make_files(str(tmp_path))
    other = Call("write_file", {"path": "other.txt", "content": "other"})

    async def main() -> None:
        model = ScriptedModel([Call("write_file", {"path": "file.txt", "content": "after"}), other], "Written.")
        result = await Agent(model, tools=[write_file]).invoke_async("Write")
        if since == "changed":
            file.write_text("by the user")
        else:
            file.unlink()
        undone = {receipt.detail: receipt.outcome for receipt in await result.undo()}
        how = "has other content than the tool left" if since == "changed" else "is gone"
        detail = f"changed since: {file} {how}. It was left as it is."
        assert undone == {detail: Undone.FAILED, "": Undone.UNDONE}
        assert (file.read_text() if file.exists() else None) == ("by the user" if since == "changed" else None)
        assert not (tmp_path / "other.txt").exists()

    asyncio.run(main())
