"""`quiesce sessions ...`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quiesce import Agent, Session, tool
from quiesce.cli import main
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, Say, ScriptedModel, Think

pytestmark = pytest.mark.promise("P9")


@pytest.fixture
def path(tmp_path: Path) -> str:
    @tool
    async def look(where: str) -> str:
        """Look."""
        return f"nothing {where}"

    async def talk() -> None:
        store = SQLiteStore(tmp_path / "s.db")
        model = ScriptedModel([Think("hm"), Say("I look. "), Call("look", {"where": "here"})], "There is nothing.")
        await Agent(model, tools=[look], session="first one", store=store, name="seeker").invoke_async("Where is it?")
        await Agent(ScriptedModel("Hello."), session=Session("second", store)).invoke_async("Hi")
        store.close().result()

    asyncio.run(talk())
    return str(tmp_path / "s.db")


def test_list_and_show(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "list", "--store", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["second", "first one"]
    assert "4 messages" in lines[1]
    assert main(["sessions", "show", "first one", "--store", path]) == 0
    shown = capsys.readouterr().out
    for part in ("seeker: end_turn", "user:      Where is it?", "[thinks: hm]", "[calls look(where='here')]",
                 "tool:      look (completed): nothing here", "assistant: There is nothing."):  # fmt: skip
        assert part in shown


def test_export_import_delete(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.jsonl"
    assert main(["sessions", "export", "first one", "--store", path, "-o", str(file)]) == 0
    assert main(["sessions", "delete", "first one", "--store", path]) == 0
    assert main(["sessions", "show", "first one", "--store", path]) == 1
    assert "There is no session 'first one'" in capsys.readouterr().err
    assert main(["sessions", "import", str(file), "--store", path]) == 0
    assert main(["sessions", "import", str(file), "--store", path]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["sessions", "import", str(file), "--store", path, "--name", "copy"]) == 0
    again = tmp_path / "again.jsonl"
    assert main(["sessions", "export", "first one", "--store", path, "-o", str(again)]) == 0
    assert again.read_bytes().splitlines()[1:] == file.read_bytes().splitlines()[1:]


def test_as_a_program_in_a_pipe(path: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import sys; from quiesce.cli import main; sys.exit(main())", "sessions"]
    environment = {**os.environ, "QUIESCE_HOME": str(tmp_path / "home")}
    exported = subprocess.run([*program, "export", "second", "--store", path], capture_output=True, check=True)
    subprocess.run([*program, "import"], input=exported.stdout, check=True, env=environment, capture_output=True)
    listed = subprocess.run([*program, "list"], capture_output=True, text=True, check=True, env=environment)
    assert listed.stdout.startswith("second ")


def test_an_empty_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "list", "--store", str(tmp_path / "none.db")]) == 0
    assert "No sessions" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["sessions"])
