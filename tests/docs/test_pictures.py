"""The pictures of the README and the manual: small, complete in themselves, and described in words."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from .pages import PAGES, ROOT

pytestmark = pytest.mark.house
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_needs_nothing_else(picture: Path) -> None:
    text = picture.read_text("utf-8")
    assert len(text) < 500_000
    root = ET.fromstring(text)
    assert root.get("aria-label")
    assert not [each for each in root.iter() if each.tag.rpartition("}")[2] in {"script", "image", "foreignObject"}]
    assert all(name.startswith("#") for name in re.findall(r'href="([^"]+)"', text))
    assert "url(" not in text


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    shown = [found for page in PAGES for found in re.findall(r"!\[([^\]]*)\]\((\S+)\)", page.read_text())]
    assert {Path(target).name for _, target in shown} == {picture.name for picture in PICTURES}
    assert all(len(words) > 20 for words, _ in shown)


def test_the_picture_of_a_stop_is_of_a_real_one() -> None:
    text = (ROOT / "docs/pictures/stop.svg").read_text("utf-8")
    for words in (
        "was stopped (user: Esc)",
        "nothing is left running",
        "cancelled while running",
        "prefers-reduced-motion",
    ):
        assert words in text
