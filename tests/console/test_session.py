"""A session is one page: the sessions beside it, its prompts below one another, and every way to stop in reach."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from .conftest import Site
from .console import answer, begin_story, prompt, requests_of, run_state, wait_for_run_after, watch

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def test_a_session_is_one_conversation_with_a_receipt_for_each_prompt(page: Page, site: Site) -> None:
    first = begin_story(page, site)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#action-steer").click()
    page.keyboard.type("hello again")
    page.keyboard.press("Enter")
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    for _ in range(2):  # as it was gone through, and after a reload
        expect(page.locator(".entry.user .words")).to_have_text(["stream a story", "hello again"])
        expect(page.locator(".segment")).to_have_count(1)
        expect(page.locator("h1")).to_have_text("stream a story")
        receipt = page.locator(f".brief[data-run='{first}']")
        expect(receipt.locator("summary").first).to_contain_text("Stopped after")
        receipt.locator("summary").first.click()
        expect(receipt.locator("[data-fact=Cause]")).to_contain_text("Stop was pressed in the console")
        page.reload()
    expect(page.locator("#receipt")).to_have_count(1)


def test_an_earlier_prompt_leads_to_the_end_of_its_session(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = prompt(page, "hello")
    run_state(page, "Finished")
    page.fill("#draft", "hello once more")
    page.keyboard.press("Enter")
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    last = page.url
    page.goto(f"{site.url}#/runs/{first}")
    page.get_by_role("link", name="Go to its last prompt").click()
    page.wait_for_url(last)


def test_the_sidebar_is_live_and_can_be_searched(page: Page, context: BrowserContext, site: Site) -> None:
    page.goto(site.url)
    other = context.new_page()
    other.goto(site.url)
    run_id = prompt(other, "deploy the sidebar")
    sidebar = page.get_by_role("complementary", name="Sessions")
    row = sidebar.locator(f"a[href='#/runs/{run_id}']")
    expect(row).to_contain_text("deploy the sidebar")
    expect(row).to_contain_text("Waiting for you")
    expect(row).to_contain_text("$0.0010")
    page.get_by_label("Search the sessions").fill("the SIDEBAR")
    expect(sidebar.locator(".session-row")).to_have_count(1)
    page.get_by_label("Which sessions").select_option("waiting")
    expect(row).to_be_visible()
    page.get_by_label("Which sessions").select_option("active")
    expect(sidebar).to_contain_text("No session matches.")
    page.get_by_label("Which sessions").select_option("all")
    row.click()
    expect(row).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="Approve deploy").click()
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")
    current = sidebar.locator("a[aria-current]")
    expect(current).to_contain_text("deploy the sidebar")  # one session, now at its second run
    expect(current).to_contain_text("Finished")
    expect(page.locator(".segment .tool-state")).to_have_text("was answered, see below")
    expect(page.locator(".segment .brief summary")).to_contain_text("Asked you after")


@pytest.mark.parametrize(("mode", "state"), [("after_tools", "Stopping after"), ("kill", "Forcing the stop")])
@pytest.mark.promise("P1")
def test_every_way_to_stop_with_a_reason(page: Page, site: Site, mode: str, state: str) -> None:
    page.goto(site.url)
    asked = requests_of(page, "/cancel")
    prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    page.get_by_text("More ways to stop").click()
    page.get_by_label("How to stop").select_option(mode)
    page.fill("#draft", "a draft that stays")
    page.get_by_label("Reason for the stop").fill("the wrong branch")
    watch(page)
    page.keyboard.press("Enter")
    page.wait_for_function("state => window.seen.some((each) => each.includes(state))", arg=state)
    if mode == "after_tools":
        page.keyboard.press("Escape")
    run_state(page, "Stopped")
    assert asked[0] == {"mode": mode, "reason": "the wrong branch"}
    expect(page.locator("#draft")).to_have_value("a draft that stays")


def test_on_a_phone_the_sessions_are_one_press_away(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(site.url)
    run_id = prompt(page, "hello from a phone")
    run_state(page, "Finished")
    sidebar = page.locator("#sidebar")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Sessions").click()
    expect(sidebar.locator(f"a[href='#/runs/{run_id}']")).to_be_visible()
    sidebar.get_by_role("link", name="New").click()
    expect(sidebar).to_be_hidden()
    expect(page.locator("#send")).to_be_in_viewport()


def test_a_long_answer_can_be_left_and_its_end_found_again(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 400})
    begin_story(page, site)
    answer(page, "Nobody came")
    jump = page.get_by_role("button", name="Jump to the end")
    expect(jump).to_be_hidden()
    page.wait_for_function("() => document.documentElement.scrollHeight > innerHeight + 600")
    page.evaluate("scrollTo(0, 0)")
    jump.click()
    expect(jump).to_be_hidden()
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
