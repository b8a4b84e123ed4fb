"""What the console weighs on the wire."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from .conftest import Site

pytestmark = [pytest.mark.promise("P5"), pytest.mark.timeout(180)]

MOST = 200_000


def test_the_page_weighs_at_most_200_kb_and_loads_nothing_from_elsewhere(page: Page, site: Site) -> None:
    sizes: dict[str, int] = {}
    page.on(
        "response",
        lambda response: sizes.__setitem__(response.url, len(response.body()) if "/static/" in response.url else 0),
    )
    page.goto(site.url)
    page.locator("#draft").wait_for()
    assert all(url.startswith(site.url) for url in sizes), sizes
    assert 50_000 < sum(sizes.values()) <= MOST, sizes
