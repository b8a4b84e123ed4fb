"""Checks a built site: links lead somewhere, nothing is loaded from elsewhere, every public name is described."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import reference


class Page(HTMLParser):
    """The links, loaded files and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag refers to."""
        values = dict(attrs)
        if values.get("id"):
            self.anchors.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag in {"script", "img"} and values.get("src"):
            self.loaded.append(str(values["src"]))
        if tag == "link" and values.get("rel") in {"stylesheet", "icon"}:
            self.loaded.append(str(values["href"]))


def main(site: Path) -> int:
    """Print what is wrong. 0 when nothing is."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    wrong = [*wrong_links(site.resolve(), pages), *_missing_names(site)]
    if not (site / "searchindex.js").exists():
        wrong.append("there is no search index")
    print(*wrong, f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links", sep="\n")
    return bool(wrong)


def wrong_links(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """What leads nowhere, and what would have to be loaded from elsewhere."""
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    yield f"{name}: loads {link}, which is not there without a network"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name}: {link} does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link} has no such heading"


def _missing_names(site: Path) -> Iterator[str]:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda _, uri: uri)
    described = {name for kind, names in dict(inventory).items() if kind.startswith("py:") for name in names}
    for module in reference.modules():
        for name in reference.public_names(module):
            if reference.home_of(module, name) not in described:
                yield f"{module}.{name} is not in the reference"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
