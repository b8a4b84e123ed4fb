"""The twelve programs of docs/side_by_side.md: those of Quiesce run here, and the page shows the files as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.side_by_side import glue, page
from bench.side_by_side.programs import FRAMEWORKS, PROGRAMS, Program, ProgramFailed, Runner, count_lines, source
from bench.side_by_side.provider import provider

pytestmark = pytest.mark.house


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with provider() as url:
        yield url


def runner(address: str, folder: Path) -> Runner:
    return Runner("quiesce", sys.executable, address, folder)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_a_program_does_what_the_page_says(program: Program, address: str, tmp_path: Path) -> None:
    seen = runner(address, tmp_path).run(program)
    if program.served:
        assert seen["prompt_kept"]
        assert seen["text_kept"]
        assert seen["closed"]


def test_a_program_that_prints_something_else_is_found(address: str, tmp_path: Path) -> None:
    wrong = Program("agent_by_name", "", "", prints="London.")
    with pytest.raises(ProgramFailed, match=r"'Paris\.' instead of 'London\.'"):
        runner(address, tmp_path).run(wrong)


def test_every_framework_has_every_program() -> None:
    assert len(PROGRAMS) == 12
    for framework in FRAMEWORKS:
        files = {path.stem for path in (page.ROOT / "examples/side_by_side" / framework).glob("*.py")}
        assert files == {program.name for program in PROGRAMS}


def test_the_page_has_the_lines_and_the_code_of_the_files() -> None:
    shown = page.found(page.PAGE.read_text())
    expected = page.from_files()
    assert {name: shown[name] for name in expected} == expected, "python -m bench.side_by_side --files"


def test_the_table_of_the_product_has_the_lines_of_the_files() -> None:
    row = page.found(page.PAGE.read_text())["glue"].splitlines()[2]
    expected = " | ".join(str(glue.lines_of(name)) for name in glue.NAMES)
    assert row == f"| {glue.ROWS['lines']} | {expected} |", "python -m bench.side_by_side.glue"


@pytest.mark.proof
def test_the_product_does_what_the_page_says(address: str) -> None:
    with glue.running("quiesce", sys.executable, address) as app:
        seen = glue.drive(app)
    assert seen.pop("stop_s") < 10
    assert seen == {"undo": True, "restart": True, "left": 0, "crash_left": 0, "valid": True, "told": True}


def test_lines_are_counted_without_blank_lines_comments_and_the_docstring() -> None:
    docstring = '"""Two\nlines."""\n\n'
    code = "import os  # used\n\n# a comment\nnames = [\n    os.name,\n]\n\n\ndef f():\n    pass\n"
    assert count_lines(docstring + code) == 1 + 3 + 2


def test_a_part_that_the_page_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="no part for lines"):
        page.fill("<!-- generated: other -->\nold\n<!-- end -->\n", {"lines": "new\n"})
    filled = page.fill("<!-- generated: lines -->\nold\n<!-- end -->\n", {"lines": "new\n"})
    assert filled == "<!-- generated: lines -->\nnew\n<!-- end -->\n"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_program_says_what_it_does_and_reads_no_settings(framework: str) -> None:
    for program in PROGRAMS:
        text = source(framework, program).read_text()
        assert text.startswith('"""')
        assert "environ" not in text
