"""Finding a session: by words, agent, state and time, beyond what the list has; and what it has used."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import prompt, run_state
from .site import KEY, OPERATOR_KEY

pytestmark = [pytest.mark.promise("P3"), pytest.mark.timeout(180)]


def fill_the_list(page: Page, site: Site, run_id: str) -> None:
    """Let the list have 200 runs, all newer than the one that is looked for."""
    one = page.request.get(f"{site.url}runs/{run_id}").json()["run"]
    now = time.time() + 10
    runs = [
        one
        | {"id": f"{number:012x}", "session": f"new-{number}", "prompt": f"newer {number}", "created_at": now + number}
        for number in range(200)
    ]
    body = f"id: x.1\ndata: {json.dumps({'type': 'list', 'runs': runs})}\n\n: open\n\n"
    page.route(f"{site.url}events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def test_what_the_list_no_longer_has_is_found(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "hello from last week")
    run_state(page, "Finished")
    fill_the_list(page, site, run_id)
    page.goto(f"{site.url}?again#/usage")
    rows = page.locator(".session-row")
    expect(rows).to_have_count(200)
    expect(page.locator(f"a.session-row[href='#/runs/{run_id}']")).to_have_count(0)
    page.get_by_label("Search the sessions").fill("LAST hello")
    expect(page.locator(f"a.session-row[href='#/runs/{run_id}']")).to_be_visible()
    page.get_by_label("Search the sessions").fill("")
    expect(rows.nth(200)).to_be_attached()
    page.get_by_role("button", name="Show older sessions").click()
    expect(page.get_by_role("button", name="Show older sessions")).to_be_hidden()  # these are all
    page.get_by_label("From which time").select_option("Last 24 hours")
    expect(rows.first).to_contain_text("newer 199")
    page.get_by_label("Which sessions").select_option("Running")
    expect(page.locator("#sidebar")).to_contain_text("No session matches.")
    page.unroute_all(behavior="ignoreErrors")


def test_usage_by_range_agent_and_session(page: Page, site: Site) -> None:
    for agent, session in (("writer", "usage-one"), ("helper-2", "usage-two")):
        body = {"prompt": "hello", "session": session, "agent": agent}
        page.request.post(f"{site.url}runs", data=body)
    page.goto(f"{site.url}#/usage")
    page.get_by_label("Which agent", exact=True).select_option("helper-2")
    sessions = page.get_by_role("region", name="Usage by session").locator("tbody tr")
    expect(sessions).to_have_count(1)
    expect(sessions).to_contain_text("usage-two")
    expect(page.get_by_role("region", name="Usage by day, model and agent").locator("tbody tr")).to_have_count(1)
    page.get_by_label("Which days").select_option("Today")
    expect(page.locator("main").get_by_role("status")).to_have_text("1 model call")
    page.get_by_label("Which agent", exact=True).select_option("All agents")
    expect(page.get_by_role("region", name="Usage by session")).to_contain_text("usage-one")


def test_an_operator_sees_the_usage_of_every_key(page: Page, keyed_site: Site) -> None:
    for _ in range(2):
        body = {"prompt": "hello", "agent": "helper-2"}
        page.request.post(f"{keyed_site.url}runs", data=body, headers={"Authorization": f"Bearer {KEY}"})
    page.goto(f"{keyed_site.url}#/usage")
    page.get_by_label("API key").fill(OPERATOR_KEY)
    page.keyboard.press("Enter")
    status = page.locator("main").get_by_role("status")
    expect(status).to_have_text("Nothing has been used yet.")
    page.get_by_label("Which key").select_option("All keys")
    by_key = page.get_by_role("region", name="Usage by key").locator("tbody tr")
    expect(by_key).to_have_count(1)
    expect(by_key).to_contain_text("tests")
    page.get_by_label("Which key").select_option("tests")
    expect(status).to_contain_text("model calls")
    expect(by_key).to_have_count(0)
    expect(page.get_by_role("region", name="Usage by day, model and agent")).to_contain_text("helper-2")
    page.evaluate("key => sessionStorage.setItem('quiesce.key', key)", KEY)
    page.reload()
    expect(status).to_contain_text("model calls")
    expect(page.get_by_label("Which key")).to_be_hidden()
