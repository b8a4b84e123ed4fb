"""Builds the manual: `python tools/site/build.py build/docs`. Needs the dependency group `docs`.

The pages are those of docs/, which read well on GitHub too. A source folder for Sphinx is made from them:

- docs/index.md says which pages there are and in which order; a page that is not there is an error
- links to pages outside of docs/ lead to copies in the site, and so do those to the programs of examples/; links to
  other files become their names
- the API reference is added: reference.py
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import check
import reference

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SOURCE: Final = ROOT / "build" / "site-source"

EXAMPLES: Final = sorted((ROOT / "examples").glob("*/README.md"))
PROGRAMS: Final = sorted(path.relative_to(ROOT) for at in ("*.py", "*/*.py") for path in ROOT.glob(f"examples/{at}"))
# Pages outside of docs/ that the site has as well.
COPIES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "examples/README.md": "examples.md",
    **{f"examples/{each.parent.name}/README.md": f"examples-{each.parent.name}.md" for each in EXAMPLES},
    **{str(path): f"{'-'.join(path.with_suffix('').parts)}.md" for path in PROGRAMS},
}
PROJECT: Final = ["changelog", "contributing", "conduct"]
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def main(out: Path) -> int:
    """Prepare the source, run Sphinx, check the result."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    prepare()
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(SOURCE), str(out)]
    built = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})  # noqa: S603
    return built.returncode or check.main(out)


def prepare() -> None:
    """Write the source folder."""
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS)
        _write(str(name), _rewritten(page, str(name)))
    for name, copy in COPIES.items():
        if copy != "index.md":
            _write(copy, _rewritten(ROOT / name, copy))
    shutil.copytree(DOCS / "pictures", SOURCE / "pictures")
    here = Path(__file__).parent
    shutil.copy(here / "conf.py", SOURCE)
    shutil.copy(here / "docstrings.py", SOURCE)
    (SOURCE / "_static").mkdir()
    shutil.copy(here / "site.css", SOURCE / "_static")
    _write("api/index.rst", reference.contents())
    for module in reference.modules():
        _write(f"api/{module}.rst", reference.page(module))
    _add_contents()


def _write(name: str, text: str) -> None:
    path = SOURCE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _rewritten(page: Path, name: str) -> str:
    """A page with its links as the site needs them; code is left alone. A program is a page with its source."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":
        return f"# {page.relative_to(ROOT / 'examples')}\n\n```python\n{text}```\n"
    pieces, at = [], 0
    for fence in _FENCE.finditer(text):
        # The diagrams are drawn by GitHub; a site that works offline shows their source.
        pieces += [_with_links(text[at : fence.start()], page, name), fence[0].replace("```mermaid", "```text", 1)]
        at = fence.end()
    return "".join([*pieces, _with_links(text[at:], page, name)])


def _with_links(text: str, page: Path, name: str) -> str:
    return _LINK.sub(lambda link: _link(link, page, name), text)


def _link(link: re.Match[str], page: Path, name: str) -> str:
    target, _, anchor = link["target"].partition("#")
    if not target or "://" in target or link["picture"]:
        return link[0]
    path = (page.parent / target).resolve()
    inside = str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else COPIES.get(str(path.relative_to(ROOT)))
    if inside is None or not inside.endswith(".md"):
        return link["text"] if "`" in link["text"] or " " in link["text"] else f"`{link['text']}`"
    where = posixpath.relpath(inside, posixpath.dirname(name) or ".")
    return f"[{link['text']}]({where}{'#' + anchor if anchor else ''})"


def _add_contents() -> None:
    """The table of contents: each section of the first page with the pages that it links to, in that order."""
    index = SOURCE / "index.md"
    text = index.read_text("utf-8")
    seen: set[str] = set()
    trees: list[str] = []
    for section in text.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        pages = [
            target.partition("#")[0][:-3]
            for *_, target in _LINK.findall(body)
            if target.partition("#")[0].endswith(".md")
        ]
        new = [page for page in dict.fromkeys(pages) if page not in seen]
        seen.update(new)
        if heading == "Reference":
            new.insert(0, "api/index")
        trees.append(_tree(heading, new))
    trees.append(_tree("The project", PROJECT))
    reading = "- [API reference](api/index.rst): every public name, from its docstring\n"
    text = text.replace("## Reference\n\n", f"## Reference\n\n{reading}", 1)
    index.write_text(text + "\n" + "\n".join(trees), "utf-8")
    decisions = sorted(path.stem for path in (SOURCE / "decisions").glob("*.md") if path.stem != "README")
    with (SOURCE / "decisions" / "README.md").open("a", encoding="utf-8") as page:
        page.write("\n" + _tree("", decisions))
    with (SOURCE / "examples.md").open("a", encoding="utf-8") as page:
        copies = [copy[:-3] for name, copy in COPIES.items() if name.startswith("examples/") and copy != "examples.md"]
        page.write("\n" + _tree("", copies))


def _tree(caption: str, pages: list[str]) -> str:
    head = f":caption: {caption}\n" if caption else ""
    return "```{toctree}\n:hidden:\n" + head + "\n" + "\n".join(pages) + "\n```\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
