"""What is shown of a run when not everything about it is known any more, and the console below another path."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from starlette.applications import Starlette
from starlette.testclient import TestClient

from quiesce import Agent
from quiesce.models.scripted import ScriptedModel
from quiesce.server import mount
from quiesce.server.app import STATIC

from .conftest import Site
from .console import prompt, run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]

RUN = re.compile(r"/runs/[0-9a-f]+$")


def tell(page: Page, *events: dict[str, Any]) -> None:
    """Let the next run have these events, whatever it really does."""
    body = "".join(f"id: {n}\nat: {n}.5\ndata: {json.dumps(event)}\n\n" for n, event in enumerate(events, 900))
    page.route("**/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def test_a_gap_is_said_and_the_servers_conversation_is_shown(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = page.request.post(f"{site.url}runs", data={"prompt": "hello"}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"]
    end = {"type": "run_ended", "stop_reason": "end_turn", "receipt": receipt, "error": None}
    tell(page, {"type": "gap", "first": 1, "last": 899}, {"type": "text", "text": "torn off"}, end)
    page.reload()
    run_state(page, "Finished")
    expect(page.locator(".entry.assistant .words")).to_have_text("Hello there.")
    expect(page.locator(".entry.user .words")).to_have_text("hello")


def test_a_crashed_run_says_so_and_can_be_continued(page: Page, site: Site) -> None:
    page.goto(site.url)
    tell(page, {"type": "text", "text": "Half a sen"})

    def crashed(route: Route) -> None:
        response = route.fetch()
        detail = response.json()
        detail["run"] |= {"state": "crashed", "stop_reason": None}
        detail["receipt"] = None
        route.fulfill(response=response, json=detail)

    page.route(RUN, crashed)
    prompt(page, "hello")
    run_state(page, "Crashed")
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#receipt")).to_contain_text("is not known")
    expect(page.locator("#action-continue")).to_be_visible()


def test_a_run_that_is_told_from_the_journal_claims_no_times(page: Page, site: Site) -> None:
    """The journal has what happened and in which order, and not when. The page must not make a time up."""
    page.goto(site.url)
    first = page.request.post(f"{site.url}runs", data={"prompt": "measure it"}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"]
    told = page.request.get(f"{site.url}runs/{first}/events").text()
    body = re.sub(r"(?m)^at: .*\n", "", told)
    assert body != told
    page.route("**/runs/*/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.reload()
    run_state(page, "Finished")
    expect(page.locator("#state-line")).to_have_text(re.compile(r"Finished after 2\.\d s"))  # as the server says
    expect(page.locator("svg.timeline")).to_be_hidden()
    page.locator("#trace > summary").click()
    expect(page.locator("#trace .trace-name").first).to_have_text("scripted, turn 1")
    expect(page.locator("#trace .trace-time").first).to_have_text("")
    tool = page.get_by_role("group", name="Tool measure")
    expect(tool.locator(".tool-state")).to_have_text("completed")
    expect(tool.locator(".tool-time")).to_have_text("")
    expect(page.locator("#receipt .receipt-tools li")).to_contain_text(f"{receipt['calls'][0]['seconds']:.1f} s")


def test_a_crash_that_the_next_server_has_sealed(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = page.request.post(f"{site.url}runs", data={"prompt": "hello"}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"] | {"stop_reason": "crashed"}
    end = {"type": "run_ended", "stop_reason": "crashed", "receipt": receipt, "error": None}
    tell(page, {"type": "text", "text": "Half a sen"}, end)

    def crashed(route: Route) -> None:
        response = route.fetch()
        detail = response.json()
        detail["run"] |= {"state": "crashed", "stop_reason": "crashed"}
        route.fulfill(response=response, json=detail | {"receipt": receipt})

    page.route(RUN, crashed)
    page.reload()
    run_state(page, "Crashed")
    expect(page.locator("#state-line")).to_have_attribute("data-tone", "bad")
    expect(page.locator("#receipt-title")).to_have_text("Crashed")
    expect(page.locator("#receipt")).to_contain_text("ended in the middle of this run")
    page.unroute_all(behavior="wait")


def test_every_file_is_served_below_a_path_too() -> None:
    outer = Starlette()
    mount(outer, Agent(ScriptedModel("hello")), "/agent")
    with TestClient(outer, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        page = client.get("/agent/")
        assert page.status_code == 200
        for name in re.findall(r'(?:href|src)="(static/[^"]+)"', page.text):
            assert client.get(f"/agent/{name}").status_code == 200, name
        for module in STATIC.glob("*.js"):
            answer = client.get(f"/agent/static/{module.name}")
            assert answer.headers["content-type"].startswith("text/javascript")
            for imported in re.findall(r'from "\./([\w.]+)"', answer.text):
                assert (STATIC / imported).exists(), imported
