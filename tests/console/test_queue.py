"""Prompts that wait for the end of a run, a run that is paused, and what is told while nobody looks."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from .conftest import Site
from .console import begin_story, look_away, prompt, requests_of, run_state, state_is, wait_for_run_after

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def test_queued_prompts_are_sent_one_after_the_other(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = prompt(page, "wait for it")
    page.get_by_role("group", name="Tool hold").wait_for()
    started = requests_of(page, "/runs")
    page.fill("#draft", "hello second")
    page.get_by_role("button", name="Queue").click()
    page.fill("#draft", "hello third")
    page.keyboard.press("Control+Enter")
    queue = page.get_by_role("region", name="Queued prompts")
    expect(queue.get_by_role("listitem")).to_have_count(2)
    expect(queue).to_contain_text("2 prompts are queued for the end of this run")
    page.reload()  # nothing is lost
    expect(queue.get_by_role("listitem").first).to_contain_text("hello second")
    assert not started
    state_is(page, "Running hold")
    site.tell("release")
    wait_for_run_after(page, first)
    expect(page.locator(".entry.user .words")).to_have_text(["wait for it", "hello second", "hello third"])
    run_state(page, "Finished")
    expect(queue).to_be_hidden()
    assert [each["prompt"] for each in started] == ["hello second", "hello third"]


@pytest.mark.promise("P1")
def test_after_a_stop_no_queued_prompt_starts_by_itself(page: Page, site: Site) -> None:
    first = begin_story(page, site)
    for text in ("hello later", "not this one"):
        page.fill("#draft", text)
        page.locator("#queue").click()
    page.get_by_role("button", name="Remove the queued prompt not this one").click()
    expect(page.locator("#draft")).to_be_focused()
    started = requests_of(page, "/runs")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    assert not started
    page.get_by_role("button", name="Send the next one").click()
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    assert [each["prompt"] for each in started] == ["hello later"]


def test_a_paused_run_waits_before_its_next_step(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "wait for it")
    page.get_by_role("group", name="Tool hold").wait_for()
    page.get_by_role("button", name="Pause").click()
    state_is(page, "Running hold, then it pauses")
    site.tell("release")
    run_state(page, "Paused")
    page.reload()
    run_state(page, "Paused")
    page.get_by_role("button", name="Go on").click()
    run_state(page, "Finished")
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()


@pytest.mark.promise("P1")
def test_a_stop_ends_a_pause_at_once(page: Page, site: Site) -> None:
    begin_story(page, site)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Go on").wait_for()
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


RECORD = """
  const Real = Notification;
  window.shown = [];
  window.Notification = class extends Real {
    constructor(title, options) { super(title, options); shown.push([title, options.body]); }
  };
"""


def test_a_hidden_tab_tells_that_an_agent_asks(page: Page, context: BrowserContext, site: Site) -> None:
    context.grant_permissions(["notifications"])
    page.add_init_script(RECORD)
    page.goto(f"{site.url}#/inbox")
    page.get_by_role("button", name="Notify me").click()
    expect(page.locator("#notify")).to_have_attribute("aria-pressed", "true")
    page.evaluate("document.hasFocus = () => false")
    look_away(page, away=True)
    page.request.post(f"{site.url}runs", data={"prompt": "deploy while I am away"})
    page.wait_for_function("() => window.shown.length > 0")
    assert page.evaluate("window.shown") == [["Approve deploy?", "deploy while I am away"]]
    page.wait_for_function("() => /^\\(\\d+\\) Inbox/.test(document.title)")
    page.get_by_role("button", name="Do not notify me").click()
    expect(page.get_by_role("button", name="Notify me", exact=True)).to_be_visible()


def test_the_options_of_a_question_are_buttons(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "choose a hotel")
    card = page.get_by_role("article", name="Question from book")
    expect(card).to_contain_text("Which hotel?")
    expect(card.get_by_role("group", name="Options").get_by_role("button")).to_have_count(2)
    card.get_by_role("button", name="Astoria").click()
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")
    page.get_by_role("group", name="Tool book").last.locator("summary").click()
    expect(page.get_by_label("Result of book").last).to_contain_text("booked Astoria in Rome")
