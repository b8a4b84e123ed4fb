"""What the console weighs on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from .conftest import Site
from .console import prompt, run_state

pytestmark = [pytest.mark.feature, pytest.mark.timeout(180)]

MOST = 100_000


def test_the_page_of_a_run_weighs_at_most_100_kb_and_loads_nothing_from_elsewhere(page: Page, site: Site) -> None:
    """Headers included, as the browser gets it; what the server says about runs is not counted."""
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}

    def answered(event: dict[str, Any]) -> None:
        files[event["requestId"]] = event["response"]["url"]

    def loaded(event: dict[str, Any]) -> None:
        sizes[event["requestId"]] = event["encodedDataLength"]

    wire.on("Network.responseReceived", answered)
    wire.on("Network.loadingFinished", loaded)
    page.goto(site.url)
    prompt(page, "hello")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    assert all(url.startswith(site.url) for url in files.values()), files
    page_files = [number for number, url in files.items() if url == site.url or "/static/" in url]
    weight = sum(sizes.get(number, 0) for number in page_files)
    assert 40_000 < weight <= MOST, weight
