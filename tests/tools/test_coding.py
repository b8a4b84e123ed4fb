"""The tools of a coding agent."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from tool_runs import call, results, run_async, stray_processes

from quiesce import Agent
from quiesce.errors import ConfigurationError
from quiesce.messages import Outcome
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.receipt import Undone
from quiesce.tools.builtin import coding_tools, make_files
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P4", "P5")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "src" / "app.py").write_text("def main():\n    print('one')\n    print('two')\n")
    (root / "notes.txt").write_text("print it\n")
    (root / "data.bin").write_bytes(b"\0print\n")
    (root / ".git" / "config").write_text("print\n")
    (tmp_path / "outside.txt").write_text("print\n")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    return root


def kit(root: Path, **options: Any) -> dict[str, Tool]:
    return {each.name: each for each in coding_tools(str(root), **{"approve": "none", **options})}


def text_of(root: Path, name: str, arguments: dict[str, Any]) -> str:
    async def main() -> str:
        return (await call(kit(root)[name], arguments)).text

    return run_async(main())


def test_listing(root: Path) -> None:
    assert text_of(root, "list_files", {}) == "data.bin\nnotes.txt\nsrc/app.py"
    assert text_of(root, "list_files", {"pattern": "*.py"}) == "src/app.py"
    assert text_of(root, "list_files", {"path": "src"}) == "src/app.py"
    assert text_of(root, "list_files", {"pattern": "*.rs"}) == "There are no such files."
    assert "outside of the folder" in text_of(root, "list_files", {"path": ".."})
    assert "cannot be read: No such file" in text_of(root, "list_files", {"path": "none"})
    for number in range(1001):
        (root / f"{number}.many").touch()
    lines = text_of(root, "list_files", {"pattern": "*.many"}).splitlines()
    assert (len(lines), lines[-1]) == (1001, "[more than 1000 files: give another path or pattern]")


def test_searching_in_python(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    both = "notes.txt:1:print it\nsrc/app.py:2:    print('one')\nsrc/app.py:3:    print('two')"
    assert text_of(root, "search_files", {"pattern": "print"}) == both
    assert text_of(root, "search_files", {"pattern": "t.o", "files": "*.py"}) == "src/app.py:3:    print('two')"
    assert text_of(root, "search_files", {"pattern": "it", "path": "notes.txt"}) == "notes.txt:1:print it"
    assert text_of(root, "search_files", {"pattern": "nothing"}) == "Nothing was found."
    assert "no regular expression" in text_of(root, "search_files", {"pattern": "("})
    assert "outside of the folder" in text_of(root, "search_files", {"pattern": "x", "path": "link.txt"})
    (root / "many").write_text("x\n" * 300)
    assert text_of(root, "search_files", {"pattern": "x", "path": "many"}).endswith("give another path or pattern]")


def test_searching_with_ripgrep(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that takes ripgrep's arguments stands for it: it is not installed everywhere."""
    program = tmp_path / "bin" / "rg"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$*" in *broken*) echo "regex parse error" >&2; exit 2;; esac\n'
        'for each; do last="$each"; done\n'
        'case "$*" in *"--glob *.py --regexp print -- $last") grep -rn print "$last";; *) exit 1;; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    found = text_of(root, "search_files", {"pattern": "print", "path": "src", "files": "*.py"})
    assert found == "src/app.py:2:    print('one')\nsrc/app.py:3:    print('two')"
    assert text_of(root, "search_files", {"pattern": "other"}) == "Nothing was found."
    assert text_of(root, "search_files", {"pattern": "broken"}) == "The search failed: regex parse error"
    assert "outside of the folder" in text_of(root, "search_files", {"pattern": "x", "path": "link.txt"})


def test_editing(root: Path) -> None:
    edits = [{"old": "'one'", "new": "'1'"}, {"old": "print", "new": "show", "all": True}]
    arguments = {"path": "src/app.py", "edits": edits}
    diff = (
        "--- src/app.py\n+++ src/app.py\n@@ -1,3 +1,3 @@\n def main():\n-    print('one')\n-    print('two')\n"
        "+    show('1')\n+    show('two')\n"
    )
    assert kit(root)["edit_file"].preview_text(arguments) == diff
    assert text_of(root, "edit_file", arguments) == diff
    assert (root / "src" / "app.py").read_text() == "def main():\n    show('1')\n    show('two')\n"


def test_an_edit_that_is_not_possible_changes_nothing(root: Path) -> None:
    def edit(*edits: dict[str, Any], path: str = "src/app.py") -> str:
        return text_of(root, "edit_file", {"path": path, "edits": list(edits)})

    fine = {"old": "one", "new": "1"}
    assert edit(fine, {"old": "three", "new": "3"}).startswith("Edit 2: its old text is not in src/app.py. Nothing")
    assert "is 2 times in src/app.py" in edit(fine, {"old": "print", "new": "show"})
    assert "Edit 1: its old text is not" in edit({"old": "", "new": "x"})
    assert edit() == "There is no edit."
    assert "cannot be read: No such file" in edit(fine, path="none.py")
    assert "outside of the folder" in edit(fine, path="link.txt")
    (root / "latin").write_bytes(b"\xff one")
    assert edit(fine, path="latin") == "latin is not text in UTF-8."
    assert (root / "src" / "app.py").read_text().count("one") == 1


def test_line_ends_stay(root: Path) -> None:
    (root / "dos.txt").write_bytes(b"a\r\nb\r\nc")
    diff = text_of(root, "edit_file", {"path": "dos.txt", "edits": [{"old": "a\nb", "new": "A\nB"}]})
    assert (root / "dos.txt").read_bytes() == b"A\r\nB\r\nc"
    assert diff.endswith(" c\n\\ No newline at end of file\n")


def test_edits_and_writes_of_one_turn_are_in_order_and_undone_in_reverse(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    calls = [
        Call("write_file", {"path": "notes.txt", "content": "a"}),
        *(
            Call("edit_file", {"path": "notes.txt", "edits": [{"old": "a" * n, "new": "a" * (n + 1)}]})
            for n in (1, 2, 3)
        ),
        Call("read_file", {"path": "./notes.txt"}),
        Call("shell", {"command": "cat notes.txt"}),
        Call("write_file", {"path": "new/deep/file", "content": "x"}),
    ]

    async def main() -> None:
        agent = Agent(ScriptedModel(calls, "Done."), tools=coding_tools(str(root), approve="none"))
        result = await agent.invoke_async("Go")
        assert [results(result)[name].text for name in ("read_file", "shell")] == ["aaaa", "aaaa"]
        assert (root / "new" / "deep" / "file").exists()
        undone = await result.undo()
        assert [receipt.outcome for receipt in undone] == [Undone.UNDONE] * 5

    run_async(main())
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (root / "new").exists()


def test_which_calls_need_an_approval(root: Path) -> None:
    def asking(**options: Any) -> set[str]:
        return {name for name, tool in kit(root, **options).items() if tool.requires_approval}

    writes = {"edit_file", "write_file", "shell", "start_process", "write_process"}
    assert asking(approve="writes") == writes
    assert {each.name for each in coding_tools(str(root)) if each.requires_approval} == writes
    assert asking(approve="none") == set()
    assert asking(approve="all") == set(kit(root))
    with pytest.raises(ConfigurationError, match="approve='some'"):
        kit(root, approve="some")
    with pytest.raises(ConfigurationError, match="There is no folder"):
        coding_tools(str(root / "none"))


def test_previews(root: Path) -> None:
    tools = kit(root)
    assert tools["shell"].preview_text({"command": "make"}) == "$ make"
    assert tools["start_process"].preview_text({"command": "serve"}) == "$ serve &"
    made = tools["write_file"].preview_text({"path": "new", "content": "x\n"})
    assert made == "--- new\n+++ new\n@@ -0,0 +1 @@\n+x\n"
    assert (
        tools["write_file"].preview_text({"path": "notes.txt", "content": "print it\n"})
        == "notes.txt stays as it is.\n"
    )
    assert "outside" in str(tools["write_file"].preview_text({"path": "../x", "content": ""}))
    assert tools["read_file"].preview_text({"path": "notes.txt"}) is None


def test_processes_in_the_background(root: Path) -> None:
    turns = [
        [
            Call("start_process", {"command": "cat; echo over >&2; exit 3"}),
            Call("start_process", {"command": "sleep 1000"}),
        ],
        [Call("write_process", {"process": "p1", "text": "hello\n"}), Call("read_process", {"process": "p1"})],
        [Call("stop_process", {"process": "p1"}), Call("read_process", {"process": "p9"})],
        [Call("write_process", {"process": "p1", "text": "x"}), Call("read_process", {"process": "p2", "seconds": 0})],
    ]

    async def main() -> None:
        agent = Agent(ScriptedModel(*turns, "Done."), tools=coding_tools(str(root), approve="none"))
        result = await agent.invoke_async("Go")
        texts = [each.text for message in result.messages for each in getattr(message, "results", ())]
        assert texts == [
            "Started as process p1.",
            "Started as process p2.",
            "Sent 6 characters to p1.",
            "hello\n[p1 is running]",
            "[p1 is ended by signal 15]",
            "There is no process 'p9'. There are: p1, p2.",
            "p1 does not read any more: it is ended by signal 15.",
            "[p2 is running]",
        ]
        assert result.receipt.still_running == ()
        assert stray_processes() == []  # p2 has ended with the run

    run_async(main())


def test_a_stop_ends_processes_in_the_background(root: Path) -> None:
    calls = [Call("start_process", {"command": "trap '' TERM; sleep 1000 & sleep 1000"})]

    async def main() -> None:
        model = ScriptedModel(calls, [Call("read_process", {"process": "p1", "seconds": 60})], "Done.")
        run = Agent(model, tools=coding_tools(str(root), approve="none")).start("Go")
        async for event in run:
            if event.type == "tool_started" and event.call.name == "read_process":
                run.cancel("enough", mode="kill")
        receipt = await run.stopped()
        assert [line.outcome for line in receipt.calls] == [Outcome.COMPLETED, Outcome.CANCELLED]
        assert receipt.still_running == ()

    asyncio.run(main())
    assert stray_processes() == []


def test_searching_counts_lines_as_reading_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    (root / "odd.txt").write_bytes("one\x0cmore\u2028of it\r\nneedle\r\n".encode())
    assert text_of(root, "search_files", {"pattern": "needle"}) == "odd.txt:2:needle"
    assert text_of(root, "search_files", {"pattern": "^needle$"}) == "odd.txt:2:needle"
    assert text_of(root, "read_file", {"path": "odd.txt", "first_line": 2}) == "needle\r\n"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="files whose size is not known before")
def test_a_file_that_turns_out_to_be_larger_is_refused() -> None:
    async def main() -> None:
        read_file, _ = make_files(max_size=10)
        assert "at most 10 are handled" in (await call(read_file, {"path": "/proc/self/status"})).text

    run_async(main())
