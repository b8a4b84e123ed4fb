"""What a shell command did is undone from a snapshot, file by file."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tool_runs import run_async, stray_processes

from quiesce import Agent, RunResult
from quiesce.cancellation import ModeName
from quiesce.errors import ConfigurationError
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.receipt import Undone, UndoReceipt
from quiesce.tools.builtin import coding_tools
from quiesce.tools.builtin.coding.kit import SnapshotKind
from quiesce.tools.builtin.coding.snapshot import CommandChanges

pytestmark = pytest.mark.promise("P4", "P5")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("a")
    (root / "b.txt").write_text("b")
    (root / "c.sh").write_text("c")
    (root / "c.sh").chmod(0o644)
    (root / "same.txt").write_text("same")
    (root / "large").write_bytes(b"x" * 2000)
    return root


def state(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
        for path in root.rglob("*")
        if path.is_file()
    }


async def run_command(root: Path, command: str, how: SnapshotKind) -> RunResult:
    if how == "git" and not (root / ".git").exists():  # the root is a folder of the repository
        subprocess.run(["git", "init", "-q", str(root.parent)], check=True)
    tools = coding_tools(str(root), approve="none", snapshot=how, max_size=1000)
    return await Agent(ScriptedModel([Call("shell", {"command": command})], "Done."), tools=tools).invoke_async("Go")


EVERYTHING = (
    "echo more >> src/a.txt; rm b.txt; chmod +x c.sh; touch same.txt; mkdir -p new/deep; echo x > new/deep/x; echo ok"
)


@pytest.mark.parametrize("how", ["copy", "git"])
def test_everything_that_a_command_changed_is_restored(root: Path, how: SnapshotKind) -> None:
    before = state(root)

    async def main() -> list[UndoReceipt]:
        result = await run_command(root, EVERYTHING, how)
        assert result.receipt.calls[0].outcome is Outcome.COMPLETED
        assert not (root / "b.txt").exists()
        assert os.listdir(root.parent / "copies") == []
        return list(await result.undo())

    (receipt,) = run_async(main())
    assert (receipt.outcome, receipt.detail) == (Undone.UNDONE, "")
    assert state(root) == before
    assert not (root / "new").exists()
    assert stray_processes() == []


@pytest.mark.parametrize("command", ["echo 1 > b.txt", "echo 1 > b.txt; printf y >> large"])
def test_a_large_file_that_was_written_just_before(root: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time stamp says nothing yet, and its content is not kept: it is named only if the command changed it."""
    monkeypatch.setattr("quiesce.tools.builtin.coding.tree_copy._CLOCK_STEP", 10**18)

    async def main() -> list[UndoReceipt]:
        return list(await (await run_command(root, command, "copy")).undo())

    (receipt,) = run_async(main())
    assert ("not kept: large" in receipt.detail) == ("large" in command)
    assert (receipt.outcome is Undone.FAILED) == ("large" in command)
    assert (root / "b.txt").read_text() == "b"


@pytest.mark.parametrize("how", ["copy", "git"])
def test_what_was_changed_since_is_left(root: Path, how: SnapshotKind) -> None:
    async def main() -> list[UndoReceipt]:
        result = await run_command(root, "echo 1 > src/a.txt; rm b.txt; echo 1 > c.sh; echo 1 > new.txt", how)
        (root / "src" / "a.txt").write_text("by the user")
        (root / "b.txt").write_text("by the user")
        (root / "new.txt").unlink()
        return list(await result.undo())

    (receipt,) = run_async(main())
    assert receipt.outcome is Undone.FAILED
    left = {str(root / name) for name in ("src/a.txt", "b.txt", "new.txt")}
    assert receipt.detail.startswith("changed since: ")
    assert all(path in receipt.detail for path in left)
    assert "all other files are as they were before the command" in receipt.detail
    assert (root / "src" / "a.txt").read_text() == (root / "b.txt").read_text() == "by the user"
    assert (root / "c.sh").read_text() == "c"
    assert not (root / "new.txt").exists()


@pytest.mark.parametrize("how", ["copy", "git"])
def test_a_file_that_is_too_large_is_named(root: Path, how: SnapshotKind) -> None:
    async def main() -> list[UndoReceipt]:
        result = await run_command(root, "echo 1 > large; echo 1 > b.txt", how)
        return list(await result.undo())

    (receipt,) = run_async(main())
    assert receipt.outcome is Undone.FAILED
    assert "not kept: large; all other files" in receipt.detail
    assert (root / "b.txt").read_text() == "b"


def test_the_data_can_be_stored(root: Path) -> None:
    tools = {each.name: each for each in coding_tools(str(root), snapshot="copy")}
    compensation = tools["shell"].compensation
    assert compensation is not None
    changes = CommandChanges((), ("large",))
    assert msgspec.json.decode(msgspec.json.encode(changes), type=CommandChanges) == changes
    assert tools["shell"].preview_text({"command": "make"}) == "$ make"
    assert tools["shell"].spec.description.startswith("Run a shell command")
    with pytest.raises(ConfigurationError, match="snapshot='zip'"):
        coding_tools(str(root), snapshot="zip")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        ("copy", "now"),
        pytest.param("git", "now", marks=pytest.mark.proof),
        pytest.param("copy", "kill", marks=pytest.mark.proof),
        ("git", "kill"),
    ],
)
def test_a_command_that_was_cut_is_undone_from_its_snapshot(root: Path, how: SnapshotKind, mode: ModeName) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    before = state(root)

    async def main() -> RunResult:
        tools = coding_tools(str(root), approve="none", snapshot=how)
        call = Call("shell", {"command": "echo 1 > b.txt; echo 1 > new.txt; echo in; sleep 1000; rm c.sh"})
        run = Agent(ScriptedModel([call], "Done."), tools=tools).start("Go")
        async for event in run:
            if event.type == "tool_progress":
                run.cancel("enough", mode=mode, undo=True)
        return await run

    result = asyncio.run(main())
    receipt = result.receipt
    assert receipt.calls[0].outcome is Outcome.KILLED
    assert [(line.outcome, line.detail) for line in receipt.undo] == [(Undone.UNDONE, "")]
    assert {name: each for name, each in state(root).items() if not name.startswith(".git")} == {
        name: each for name, each in before.items() if not name.startswith(".git")
    }
    assert "diff-index" not in str(result.messages)
    assert os.listdir(root.parent / "copies") == []
    assert stray_processes() == []


def test_git_leaves_the_index_and_ignored_files_alone(root: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (root / ".gitignore").write_text("ignored*\n")
    git("add", "b.txt", ".gitignore")
    before = git("status", "--porcelain")

    async def main() -> list[UndoReceipt]:
        result = await run_command(root, "echo 1 > b.txt; echo 1 > ignored.txt; echo 1 > 'with space\u00e9.txt'", "git")
        return list(await result.undo())

    (receipt,) = run_async(main())
    assert receipt.outcome is Undone.UNDONE
    assert git("status", "--porcelain") == before
    assert (root / "b.txt").read_text() == "b"
    assert (root / "ignored.txt").exists()


def test_git_needs_a_repository(root: Path) -> None:
    with pytest.raises(ConfigurationError, match="no git repository"):
        coding_tools(str(root), snapshot="git")


@pytest.mark.promise("P3", "P4")
def test_a_command_whose_changes_cannot_be_read_keeps_its_output(root: Path) -> None:
    async def main() -> None:
        result = await run_command(root, "rm -r ../.git; echo ran", "git")
        answer = result.messages[2].results[0]
        assert (answer.text, answer.is_error) == ("ran", False)
        (receipt,) = await result.undo()
        assert receipt.outcome is Undone.FAILED
        assert "The snapshot failed" in receipt.detail

    run_async(main())


def test_a_file_that_cannot_be_read_after_the_command_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_open = os.open

    def without_rights(path: Any, *args: Any, **options: Any) -> int:
        if path in ("secret", "c.sh") and (root / "secret").exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return system_open(path, *args, **options)

    monkeypatch.setattr(os, "open", without_rights)  # root reads everything

    async def main() -> list[UndoReceipt]:
        result = await run_command(root, "echo 1 > b.txt; echo 1 > c.sh; echo 1 > secret", "copy")
        return list(await result.undo())

    (receipt,) = run_async(main())
    assert receipt.outcome is Undone.FAILED
    assert "not kept: secret, c.sh; all other files" in receipt.detail
    assert (root / "b.txt").read_text() == "b"
