"""docs/architecture.md, the layers of import-linter and the tree say the same."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

from quiesce.cancellation import Mode
from quiesce.messages import Outcome

from .vocabulary import VOCABULARY

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "quiesce"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

pytestmark = pytest.mark.house


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


def names_of_files() -> set[str]:
    """Also those in the pictures."""
    files = set(re.findall(r"[\w/]+\.(?:py|js)\b", PAGE)) | set(re.findall(r"`([a-z_/]+/)`", PAGE))
    return files | set(re.findall(r"participant \w+ as (\S+/)\n", PAGE))


def test_no_other_room_uses_the_inside_of_a_run() -> None:
    outside = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "run")
    inside = re.compile(r"\bstate_of\(|from \.+run\.(state|waiting) import|\b(run|running|_run)\.state\.")
    assert [str(path) for path in outside if inside.search(path.read_text())] == []


def test_every_file_that_the_page_names_is_there() -> None:
    assert len(names_of_files()) > 100
    assert {name for name in names_of_files() if not (PACKAGE / name).exists()} == set()


def definitions(source: str) -> set[str]:
    """What a file defines: functions, classes, constants, and `Class.name` for what is in a class."""
    found: set[str] = set()

    def look(body: list[ast.stmt], owner: str) -> None:
        for each in body:
            match each:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.update((name, owner + name))
                case ast.ClassDef(name=name, body=inner):
                    found.update((name, owner + name))
                    look(inner, f"{name}.")
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    found.update((name, owner + name))
                case _:
                    pass

    look(ast.parse(source).body, "")
    return found


@functools.cache
def all_definitions() -> dict[str, set[str]]:
    return {str(path.relative_to(PACKAGE)): definitions(path.read_text()) for path in PACKAGE.rglob("*.py")}


def named_with_their_file() -> list[tuple[str, str]]:
    """`name` in `file`, `name` of `file`, `name` (`file`) and `file`, `NAME`, over the ends of lines too."""
    page = " ".join(PAGE.split())
    after = re.findall(r"`([A-Za-z_.]+)`(?: in| of)? \(?`([\w/]+\.py)`", page)
    before = [(name, path) for path, name in re.findall(r"`([\w/]+\.py)`, `([A-Z]\w+)`", page)]
    return [(name, path) for name, path in (*after, *before) if not name.endswith(".py")]


def test_every_function_that_the_page_names_is_in_its_file() -> None:
    named = named_with_their_file()
    assert len(named) > 35
    assert [(name, path) for name, path in named if name not in all_definitions()[path]] == []


def test_every_name_of_the_page_is_somewhere() -> None:
    """Names of classes, methods and functions, in the text and in the pictures, that stand there without a file."""
    pictures = "".join(re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL))
    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)*)`", PAGE)) | set(re.findall(r"`([a-z]+_[a-z_]+)`", PAGE))
    named |= set(re.findall(r"\b(_?[a-z]+_[a-z_]+)\b", re.sub(r"\S+\.py|\S+/", "", pictures)))
    assert {"Agent.start", "claim_or_queue", "write_ending", "on_busy"} <= named
    defined = set().union(*all_definitions().values()) | {path.stem for path in PACKAGE.rglob("*.py")}
    named -= {str(outcome) for outcome in Outcome} | {mode.name.lower() for mode in Mode}
    assert named - defined - PARAMETERS == set()


# Parameters that are no field of a class.
PARAMETERS = {"output_type"}


def glossary() -> dict[str, str]:
    return {row[0]: row[1] for row in rows("Glossary")}


def test_the_glossary_has_every_word_of_ours_and_no_other() -> None:
    assert glossary().keys() == VOCABULARY.keys()
    assert all(len(row) == 2 and row[1] for row in rows("Glossary"))


@pytest.mark.parametrize("word", VOCABULARY)
def test_a_word_of_the_glossary_is_used_in_the_code(word: str) -> None:
    expression, place = VOCABULARY[word]
    path = PACKAGE / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    assert any(re.search(expression, file.read_text()) for file in files)


def test_the_glossary_names_every_mode_and_every_outcome() -> None:
    assert re.findall(r"`(\w+)`", glossary()["mode"]) == [mode.name.lower() for mode in Mode]
    assert set(re.findall(r"`(\w+)`", glossary()["outcome"])) == {str(outcome) for outcome in Outcome}


def test_ten_common_changes_have_their_place() -> None:
    assert len(rows("Where do I change ...")) >= 10
