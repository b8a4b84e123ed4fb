"""The API reference has every public name: what the package offers, and what the pages import."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import quiesce

from .pages import PAGES, ROOT, blocks, links

sys.path.insert(0, str(ROOT / "tools/site"))
import check
import reference
from docstrings import as_rst

pytestmark = pytest.mark.house
MODULES = reference.modules()


def imported_by_the_pages() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.kind == "python":
                tree = ast.parse(block.body)
                froms = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module]
                found |= {(each.module or "", name.name) for each in froms for name in each.names}
    return {(module, name) for module, name in found if module.partition(".")[0] == "quiesce"}


def test_everything_that_can_be_imported_from_the_package_is_in_the_reference() -> None:
    names = {name for name in quiesce.__all__ if not name.startswith("_")}
    assert names == set(reference.public_names("quiesce"))
    assert len(names) > 70


def test_every_name_that_a_page_imports_is_in_the_reference() -> None:
    imported = imported_by_the_pages()
    assert len(imported) > 60
    missing = {
        f"{module}.{name}"
        for module, name in imported
        if not name.startswith("_") and (module not in MODULES or name not in reference.public_names(module))
        # `from quiesce import testing` is a module.
        if not inspect.ismodule(getattr(importlib.import_module(module), name, None))
    }
    assert missing == set()


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_it_is(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in reference.public_names(module):
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{module}.{name} has no docstring"


@pytest.mark.parametrize("module", MODULES)
def test_a_page_describes_each_name_or_says_where(module: str) -> None:
    page = reference.page(module)
    for name in reference.public_names(module):
        assert f":: {module}.{name}\n" in page or f":: {name}\n" in page or f"`{name} <" in page


@pytest.mark.parametrize(
    ("docstring", "rst"),
    [
        ("Says `hello` to *all*.", ["Says ``hello`` to \\*all\\*.", ""]),
        (
            "name   the name\n       of a thing\nage    in years",
            ["* ``name``: the name of a thing", "* ``age``: in years", ""],
        ),
        ("Args:\n    town: where\n        it is", ["* ``town``: where it is", ""]),
        ("    x = 1", ["::", "", "        x = 1", ""]),
        ("Takes `Tool`s.", ["Takes ``Tool``\\ s.", ""]),
    ],
)
def test_a_docstring_becomes_restructuredtext(docstring: str, rst: list[str]) -> None:
    assert as_rst(docstring.split("\n")) == rst


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    wrong = '<a href="no.html">x</a><a href="b.html#no">x</a><script src="https://cdn.example/x.js"></script>'
    (tmp_path / "a.html").write_text(f'<p id="here"><a href="#here">x</a><a href="b.html#there">x</a>{wrong}')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.com">x</a>')
    found = list(check.wrong_links(tmp_path, {path: check.Page(path) for path in tmp_path.iterdir()}))
    assert sorted(found) == [
        "a.html: b.html#no has no such heading",
        "a.html: loads https://cdn.example/x.js, which is not there without a network",
        "a.html: no.html does not exist",
    ]


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_the_site_is_built_without_a_warning_and_all_its_links_lead_somewhere() -> None:
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # a warning of Sphinx is an error


def test_the_first_page_links_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in links((ROOT / "docs/index.md").read_text())}
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - linked == set(), "a page that docs/index.md does not name is not in the site"
