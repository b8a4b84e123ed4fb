"""The page of a fleet, which is there when the server says that there is one. The data are those of the schema."""

from __future__ import annotations

import re
import time
from decimal import Decimal

import msgspec
import pytest
from playwright.sync_api import Page, expect

from quiesce.server.schemas import CapFigures, CapView, FleetView, FreezeView, QueueView, WorkerView

from .conftest import Site
from .console import run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def of_a_fleet(page: Page) -> None:
    """Let the server be a replica with two workers, a queue, a freeze and a cap."""
    now = time.time()
    workers = (
        WorkerView("w-1", "up", ("writer", "<b>reader</b>"), 4, 4, now - 4000, 0.5),
        WorkerView("w-2", "lost", ("writer",), 0, 4, now - 9000, 95.0),
    )
    queues = (QueueView("writer", 3, 1), QueueView("painter", 1, 0))
    cap = CapView("", True, CapFigures(10, None, Decimal(5)), CapFigures(2, None, Decimal("1.25")), 3600.0)
    freeze = FreezeView("painter", "It paints the <b>wrong</b> wall", "ops", now - 60, None, "", "")
    released = FreezeView("writer", "over", "ops", now - 600, now - 500, "ops", "")
    fleet = msgspec.json.encode(FleetView(workers, queues, (cap,), (freeze, released)))
    health = {"status": "ok", "runs": 0, "version": "1", "fleet": True}
    page.route("**/healthz", lambda route: route.fulfill(json=health))
    page.route(re.compile(r"/fleet$"), lambda route: route.fulfill(body=fleet, content_type="application/json"))


def test_workers_and_queues_are_shown_when_there_is_a_fleet(page: Page, site: Site) -> None:
    of_a_fleet(page)
    page.goto(site.url)
    page.get_by_role("link", name="Fleet", exact=True).click()
    expect(page.locator("main").get_by_role("status")).to_have_text("1 of 2 workers up")
    workers = page.get_by_role("region", name="Workers").locator("tbody tr")
    expect(workers.nth(0)).to_contain_text("full4 of 4writer, <b>reader</b>")
    expect(workers.nth(1)).to_contain_text("lost; its runs are taken over")
    queues = page.get_by_role("region", name="Runs by agent, of all keys").locator("tbody tr")
    expect(queues.nth(0)).to_contain_text("writer311")
    expect(queues.nth(1)).to_contain_text("none: start one")
    expect(page.locator("main .problem")).to_have_count(1)
    expect(page.locator("main .problem")).to_contain_text("Frozen: painter, by ops")
    caps = page.get_by_role("region", name="Caps").locator("tbody tr")
    expect(caps).to_contain_text("all agentsall keys together2 of 10no cap$1.25 of $5.00")
    page.unroute_all(behavior="ignoreErrors")


def test_without_a_fleet_there_is_no_such_page(page: Page, site: Site) -> None:
    with page.expect_response("**/healthz"):
        page.goto(f"{site.url}#/runs/none")
    run_state(page, "Not found")
    expect(page.get_by_role("link", name="Fleet", exact=True)).to_be_hidden()
