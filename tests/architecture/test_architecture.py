"""docs/architecture.md, the layers of import-linter and the tree say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "quiesce"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

pytestmark = pytest.mark.promise("P2")


def layers() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["type"] == "layers")
    return [
        [name for name in re.split(r"\s*[:|]\s*", layer) if not name.startswith("_")] for layer in contract["layers"]
    ]


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    lines = (line for line in section(title).splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines][1:]


def test_the_picture_has_the_layers_in_their_order() -> None:
    drawn = re.findall(r'\["([^"]+)"\]', section("The rooms"))
    assert [each.split(" · ") for each in drawn] == layers()


def test_the_table_has_every_room() -> None:
    named = [name for row in rows("The rooms") for name in re.findall(r"`([a-z_]+)`", row[0])]
    assert sorted(named) == sorted(name for layer in layers() for name in layer)


def test_every_room_of_the_tree_is_in_a_layer() -> None:
    tree = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {name for name in tree if not name.startswith("_")} == {name for layer in layers() for name in layer}


def test_no_other_room_uses_the_inside_of_a_run() -> None:
    outside = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "run")
    inside = re.compile(r"\bstate_of\(|from \.+run\.(state|waiting) import|\b(run|running|_run)\.state\.")
    assert [str(path) for path in outside if inside.search(path.read_text())] == []


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`([a-z_/]+(?:\.py|\.js|/))`", PAGE)) | set(
        re.findall(r"participant \w+ as (\S+/\S*)", PAGE)
    )
    assert len(named) > 60
    assert {name for name in named if not (PACKAGE / name).exists()} == set()


def test_every_function_that_the_page_names_is_in_its_file() -> None:
    for name, path in re.findall(r"`([a-z_]+)` in `([a-z_/]+\.py)`", PAGE):
        assert f"def {name}(" in (PACKAGE / path).read_text(), (name, path)


def test_the_glossary_has_the_words_that_are_kept() -> None:
    words = {row[0] for row in rows("Glossary")}
    kept = {"receipt", "settle", "seal", "ledger", "grace", "shield", "token", "cause", "mode", "phase", "turn"}
    kept |= {"steer", "undo", "promise"}
    assert kept <= words
    assert all(len(row) == 2 and row[1] for row in rows("Glossary"))


def test_ten_common_changes_have_their_place() -> None:
    assert len(rows("Where do I change ...")) >= 10
