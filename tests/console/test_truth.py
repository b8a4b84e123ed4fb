"""Every part of a page says the same, at every moment."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, Route, expect

from .conftest import Site
from .console import RUN, answer, begin_story, hold_the_first, prompt, run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


@pytest.mark.promise("P1")
def test_stop_this_tool_answers_at_once(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    tool = page.get_by_role("group", name="Tool build")
    tool.locator(".tool-progress").wait_for()
    with page.expect_request("**/tools/*/cancel"):
        at_once = tool.evaluate("""(tool) => {
          tool.querySelector(".tool-head button").click();
          return [tool.querySelector(".tool-state").textContent, tool.querySelector(".tool-head button").hidden];
        }""")
    assert at_once == ["stopping", True]  # in the very task of the click
    answer(page, "The build is done.")
    expect(tool.locator(".tool-state")).to_have_text("cancelled while running")


@pytest.mark.promise("P1")
def test_the_receipt_is_there_with_the_last_event_and_waits_for_no_other_request(page: Page, site: Site) -> None:
    begin_story(page, site)
    held = hold_the_first(page, RUN)
    page.keyboard.press("Escape")
    expect(page.locator("#receipt")).to_contain_text("Stopped")
    page.wait_for_function("document.getElementById('receipt').dataset.marked = 'yes'")
    while not held:  # the page asks for the rest of it
        page.wait_for_timeout(10)
    held[0].continue_()
    expect(page.get_by_role("button", name="Export the conversation as Markdown")).to_be_visible()
    assert page.locator("#receipt").get_attribute("data-marked") == "yes", "a card without news was drawn again"


def test_a_tool_that_could_not_be_stopped_runs_on_and_says_so(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    tool = page.get_by_role("group", name="Tool build")
    tool.locator(".tool-progress").wait_for()
    body = json.dumps({"error": {"code": "no", "message": "It cannot be stopped.", "todo": ""}})
    page.route("**/tools/*/cancel", lambda route: route.fulfill(status=409, body=body, content_type="application/json"))
    tool.get_by_role("button", name="Stop only the tool build").click()
    expect(page.get_by_role("alert")).to_have_text("It cannot be stopped.")
    expect(tool.locator(".tool-state")).to_have_text("running")
    expect(tool.get_by_role("button", name="Stop only the tool build")).to_be_visible()
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


@pytest.mark.promise("P7")
@pytest.mark.parametrize("sealed", [True, False])
def test_the_page_of_a_crashed_run_agrees_with_itself(page: Page, site: Site, sealed: bool) -> None:
    page.goto(site.url)
    first = page.request.post(f"{site.url}runs", data={"prompt": "measure it"}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"] | {"stop_reason": "crashed"}
    receipt["calls"][0]["outcome"] = "unknown"
    call = {"type": "tool_call", "id": receipt["calls"][0]["call_id"], "name": "measure", "arguments": {}}
    events = [
        {"type": "model_call_started", "turn": 1, "attempt": 1, "model": "m"},
        {"type": "text", "text": "Half a sen"},
    ]
    events.append({"type": "tool_started", "call": call})
    if sealed:
        events.append({"type": "run_ended", "stop_reason": "crashed", "receipt": receipt, "error": None})
    body = "".join(f"id: {n}\nat: {n}.5\ndata: {json.dumps(event)}\n\n" for n, event in enumerate(events, 1))
    page.route("**/runs/*/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))

    def crashed(route: Route) -> None:
        response = route.fetch()
        detail = response.json() | {"receipt": receipt if sealed else None}
        detail["run"] |= {"state": "crashed", "stop_reason": "crashed" if sealed else None}
        route.fulfill(response=response, json=detail)

    page.route(RUN, crashed)
    page.reload()
    run_state(page, "Crashed")
    page.locator("#receipt").wait_for()
    answer(page, "Half a sen")
    tool = page.get_by_role("group", name="Tool measure")
    expect(tool.locator(".tool-state")).to_have_text("unknown")
    expect(page.locator("progress:visible")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("Nothing is left running")
    expect(page.locator("#stop")).to_be_hidden()
    page.unroute_all(behavior="wait")


def test_tokens_and_cost_are_live_and_the_picture_agrees_with_the_receipt(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "write it down")
    live = page.locator("#live-usage")
    expect(live).to_contain_text("90 tokens in")
    expect(live).to_contain_text("$0.0005 so far")
    before = live.inner_text()
    expect(live).not_to_have_text(before)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    expect(live).to_be_hidden()
    said = page.locator("#receipt [data-fact='Tokens out'] .value").inner_text().removeprefix("about ")
    expect(page.locator("svg.timeline .tl-sub").first).to_have_text(said)
