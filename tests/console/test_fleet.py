"""The page of a fleet, which is there when the server says that there is one. The data are those of the schema."""

from __future__ import annotations

import re
import time

import msgspec
import pytest
from playwright.sync_api import Page, expect

from quiesce.server.schemas import FleetView, QueueView, WorkerView

from .conftest import Site
from .console import run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def of_a_fleet(page: Page) -> None:
    """Let the server be a replica with two workers and a queue."""
    now = time.time()
    workers = (
        WorkerView("w-1", ("writer", "<b>reader</b>"), "ready", now - 4000, 0.5),
        WorkerView("w-2", ("writer",), "lost", now - 9000, 95.0),
    )
    queues = (QueueView("writer", 3, 1, now - 75, 1), QueueView("painter", 1, 0, now - 5, 0))
    fleet = msgspec.to_builtins(FleetView(workers, queues))
    health = {"status": "ok", "runs": 0, "version": "1", "fleet": True}
    page.route("**/healthz", lambda route: route.fulfill(json=health))
    page.route(re.compile(r"/fleet$"), lambda route: route.fulfill(json=fleet))


def test_workers_and_queues_are_shown_when_there_is_a_fleet(page: Page, site: Site) -> None:
    of_a_fleet(page)
    page.goto(site.url)
    page.get_by_role("link", name="Fleet", exact=True).click()
    expect(page.locator("main").get_by_role("status")).to_have_text("1 of 2 workers at work")
    workers = page.get_by_role("region", name="Workers").locator("tbody tr")
    expect(workers.nth(0)).to_contain_text("takes runs")
    expect(workers.nth(0)).to_contain_text("writer, <b>reader</b>")
    expect(workers.nth(1)).to_contain_text("lost; its runs are taken over")
    queues = page.get_by_role("region", name="Your runs by agent").locator("tbody tr")
    expect(queues.nth(0)).to_contain_text("1 min")
    expect(queues.nth(1)).to_contain_text("none: start one")
    page.unroute_all(behavior="ignoreErrors")


def test_without_a_fleet_there_is_no_such_page(page: Page, site: Site) -> None:
    with page.expect_response("**/healthz"):
        page.goto(f"{site.url}#/runs/none")
    run_state(page, "Not found")
    expect(page.get_by_role("link", name="Fleet", exact=True)).to_be_hidden()
