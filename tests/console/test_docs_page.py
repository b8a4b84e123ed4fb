"""The reference of the HTTP interface, at /docs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from quiesce.server import Settings
from quiesce.server.openapi import OPERATIONS, document

from .conftest import Site
from .test_access import axe, check_colours

__all__ = ["axe"]
pytestmark = [pytest.mark.feature, pytest.mark.timeout(120)]


def test_every_operation_and_schema_is_on_the_page(page: Page, site: Site) -> None:
    hosts: list[str] = []
    page.on("request", lambda request: hosts.append(request.url))
    page.goto(f"{site.url}docs#cancel_run")
    page.locator("#schema-UserMessage").wait_for()
    schemas = document(Settings())["components"]["schemas"]
    assert page.locator("main section").count() == len(OPERATIONS) + len(schemas)
    assert "Stop a run" in page.locator("#cancel_run").inner_text()
    assert '"reason": "wrong branch"' in page.locator("#cancel_run pre").first.inner_text()
    page.locator("#cancel_run a", has_text="CancelRun").first.click()
    assert page.url.endswith("#schema-CancelRun")
    assert all(url.startswith(site.url) for url in hosts), hosts


def test_axe_finds_nothing_and_a_phone_scrolls_one_way(browser: Browser, site: Site, axe: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"{site.url}docs")
    page.locator("#schema-UserMessage").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # The other sections are made by the same two functions; axe would take a quarter of a minute for them.
    page.evaluate("document.querySelectorAll('main section').forEach((each, n) => n > 3 && n < 108 && each.remove())")
    check_colours(page, axe, "docs")
    context.close()
