"""From a draft to a prompt: attachments, pasted blocks, completion."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quiesce.cli.chat_draft import PastedBlocks, attached_files, complete, compose
from quiesce.errors import ConfigurationError
from quiesce.messages import Document, Image, Text

pytestmark = pytest.mark.feature
COMMANDS = ("/ps", "/stop", "/sessions")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("two eggs")
    (tmp_path / "cake.png").write_bytes(b"\x89PNG")
    (tmp_path / "my plan.pdf").write_bytes(b"%PDF")
    (tmp_path / ".secret").write_text("key")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "evil\x1b[2J.txt").write_text("x")
    return tmp_path


def test_files_are_attached_as_text_image_and_document() -> None:
    prompt = compose('read (@notes.txt) not; @notes.txt, @cake.png and @"my plan.pdf". @ann @recipes @missing.txt')
    text, notes, cake, plan = prompt.content
    assert isinstance(text, Text)
    assert text.text.startswith("read (@notes.txt)")
    assert notes == Text('\n\n<file path="notes.txt">\ntwo eggs\n</file>')
    assert cake == Image("image/png", b"\x89PNG")
    assert plan == Document(data=b"%PDF", name="my plan.pdf")
    assert prompt.shown.splitlines()[1:] == [
        "  + notes.txt (8 bytes)",
        "  + cake.png (4 bytes)",
        "  + my plan.pdf (4 bytes)",
    ]


def test_what_cannot_be_attached_is_said_and_a_pipe_is_not_read(folder: Path) -> None:
    (folder / "blob").write_bytes(b"\xff\x00")
    (folder / "long.txt").write_bytes(b"x" * (512 * 1024 + 1))
    for name in ("blob", "long.txt"):
        with pytest.raises(ConfigurationError, match="The draft is kept"):
            compose(f"see @{name}")
    os.mkfifo(folder / "pipe")
    assert attached_files("see @pipe and @/dev/zero and @\x00") == ()


def test_pasted_blocks_are_folded_unfolded_and_name_no_files() -> None:
    pasted = PastedBlocks()
    first, second = "a @notes.txt\n" * 20, "b\n" * 20
    words = [pasted.fold(first), pasted.fold(second), pasted.fold(first)]
    assert words == ["[pasted 20 lines]", "[pasted 20 lines, 2]", "[pasted 20 lines]"]
    assert pasted.fold("x" * 1001) == "[pasted 1001 characters]"
    assert pasted.fold("short\ntext") == "short\ntext"
    prompt = compose(f"what is {words[0]} and {words[1]}?", pasted)
    assert prompt.content == (Text(f"what is {first} and {second}?"),)
    assert prompt.shown == f"what is {words[0]} and {words[1]}?"


def test_an_image_that_is_dropped_on_the_terminal_is_attached(folder: Path) -> None:
    pasted = PastedBlocks()
    assert pasted.fold(f"'{folder}/cake.png'") == f"@{folder}/cake.png"
    assert pasted.fold("file:///nowhere/cake.png") == "file:///nowhere/cake.png"


def test_completion_of_commands_modes_and_paths() -> None:
    assert complete("/s", COMMANDS).options == ("/stop", "/sessions")
    assert complete("/stop", COMMANDS).options == ()
    assert complete("/stop k", COMMANDS).options == ("kill",)
    assert complete("see @", COMMANDS).options == ("@cake.png", '@"my plan.pdf"', "@notes.txt", "@recipes/")
    assert complete("see @.", COMMANDS).options == ("@.secret",)
    assert complete("see @No", COMMANDS).options == ("@notes.txt",)
    assert complete('see @"my', COMMANDS).options == ('@"my plan.pdf"',)
    assert complete("ann@n", COMMANDS).options == ()
    assert complete("see @nowhere/x", COMMANDS).options == ()
    assert complete("text", COMMANDS).options == ()


def test_the_home_of_an_unknown_user_is_only_text() -> None:
    assert compose("ask @~nosuchuser and @~nosuchuser/notes.txt").content == (
        Text("ask @~nosuchuser and @~nosuchuser/notes.txt"),
    )
    assert complete("ask @~nosuchuser/n", COMMANDS).options == ()
    assert PastedBlocks().fold("~nosuchuser/cake.png") == "~nosuchuser/cake.png"
