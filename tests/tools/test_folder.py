"""The file tools stay in their folder, whatever happens to the links in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quiesce.errors import ToolError
from quiesce.tools.builtin import make_files

pytestmark = pytest.mark.feature


@contextmanager
def swapping(swap: Callable[[int], None]) -> Iterator[None]:
    """Another process, as it were, that changes the folder all the time."""
    over = threading.Event()

    def work() -> None:
        turn = 0
        while not over.is_set():
            swap(turn)
            turn += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place, text in ((inside, "mine"), (outside, "secret")):
        (place / "folder").mkdir(parents=True)
        (place / "folder" / "file").write_text(text)
    return inside, outside


def test_a_link_that_is_swapped_in_leads_nowhere(places: tuple[Path, Path]) -> None:
    inside, outside = places
    read_file, write_file = make_files(str(inside))
    targets = (inside / "folder", outside / "folder")

    def swap(turn: int) -> None:
        (inside / "next").symlink_to(targets[turn % 2])
        os.replace(inside / "next", inside / "link")

    swap(0)
    read = {read_file(path="link/file")}
    with swapping(swap):
        for number in range(1500):
            try:
                read.add(read_file(path="link/file"))
                if number % 10 == 0:
                    write_file(path="link/written", content="x")
            except ToolError as error:
                assert "outside of the folder" in str(error) or "cannot be" in str(error)  # noqa: PT017
    assert read == {"mine"}
    assert sorted(path.name for path in (outside / "folder").iterdir()) == ["file"]


def test_links_inside_are_followed(places: tuple[Path, Path]) -> None:
    inside, outside = places
    read_file, write_file = make_files(str(inside))
    (inside / "relative").symlink_to("folder/../folder/file")
    (inside / "absolute").symlink_to(inside / "folder")
    (inside / "loop").symlink_to("loop")
    (inside / "up").symlink_to("../outside/folder")
    (inside / "folder" / "root").symlink_to("..")
    absolute = str(inside / "folder" / "file")
    for path in ("relative", "absolute/file", "folder/root/folder/file", "./folder/file/", absolute):
        assert read_file(path=path) == "mine"
    write_file(path="relative", content="new")
    assert (inside / "folder" / "file").read_text() == "new"
    assert (inside / "relative").is_symlink()
    for path in ("up/file", "folder/../../outside/folder/file", str(outside / "folder" / "file")):
        with pytest.raises(ToolError, match="outside of the folder"):
            read_file(path=path)
    with pytest.raises(ToolError, match="cannot be read: Too many levels"):
        read_file(path="loop")
    with pytest.raises(ToolError, match="cannot be read: Not a directory"):
        read_file(path="relative/below")
    with pytest.raises(ToolError, match="it holds: absolute, folder"):
        read_file(path=".")


def test_the_folder_itself_may_be_a_link(places: tuple[Path, Path], tmp_path: Path) -> None:
    inside, _ = places
    (tmp_path / "alias").symlink_to(inside)
    read_file, _ = make_files(str(tmp_path / "alias"))
    for path in ("folder/file", str(tmp_path / "alias" / "folder" / "file"), str(inside / "folder" / "file")):
        assert read_file(path=path) == "mine"
