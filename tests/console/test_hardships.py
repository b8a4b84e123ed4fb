"""What goes wrong on real days: keys held down, impatient people, storage that is full, networks that come and go."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from .conftest import Site
from .console import (
    RUN,
    answer,
    begin_story,
    hold_the_first,
    look_away,
    prompt,
    requests_of,
    run_state,
    state_is,
    wait_for_run_after,
)

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


# --- Stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P1")
def test_enter_held_down_on_stop_does_not_force(page: Page, site: Site) -> None:
    page.goto(site.url)
    asked = requests_of(page, "/cancel")
    prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    page.locator("#stop").focus()
    for _ in range(5):
        page.keyboard.down("Enter")  # from the second one on it is the key repeating itself
    page.keyboard.up("Enter")
    state_is(page, "Stopping: waiting for build")
    run_state(page, "Stopped")
    assert [each["mode"] for each in asked] == ["now"]
    expect(page.locator("#receipt [data-fact='At rest']")).to_contain_text("mode: now")


@pytest.mark.promise("P1")
def test_after_a_patient_stop_the_button_says_and_does_the_next_thing(page: Page, site: Site) -> None:
    page.goto(site.url)
    asked = requests_of(page, "/cancel")
    prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    page.locator("#stop-later").click()
    state_is(page, "Stopping after this turn")
    expect(page.locator("#stop")).to_have_text("Stop now")
    expect(page.locator("#composer-hint")).to_contain_text("Esc stops it now")
    page.reload()  # the page has nothing of its own to remember it by
    state_is(page, "Stopping after this turn")
    expect(page.locator("#stop")).to_have_text("Stop now")
    page.keyboard.press("Escape")
    state_is(page, "Stopping: waiting for build")
    expect(page.locator("#stop")).to_have_text("Force stop")
    run_state(page, "Stopped")
    assert [each["mode"] for each in asked] == ["after_turn", "now"]


@pytest.mark.promise("P7")
def test_a_stop_that_comes_just_too_late_says_how_the_run_really_ended(page: Page, site: Site) -> None:
    page.goto(site.url)
    hold_the_first(page, "**/runs/*/events")  # the end of the run does not reach the page by this line

    def as_before(route: Route) -> None:
        response = route.fetch()
        detail = response.json()
        detail["run"] |= {"state": "running", "stop_reason": None, "ended_at": None}
        detail["receipt"] = None
        route.fulfill(response=response, json=detail)

    page.route(RUN, as_before)
    prompt(page, "hello")
    expect(page.locator("#stop")).to_be_visible()
    page.unroute(RUN)
    page.locator("#stop").click()
    run_state(page, "Finished")
    expect(page.locator("#receipt-title")).to_have_text("Finished")
    answer(page, "Hello there.")


@pytest.mark.promise("P1")
def test_a_browser_that_keeps_nothing_can_stop_too(page: Page, site: Site) -> None:
    page.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };")
    begin_story(page, site)
    page.fill("#draft", "a draft that cannot be kept")
    page.locator("#stop").click()
    run_state(page, "Stopped")
    expect(page.locator("#draft")).to_have_value("a draft that cannot be kept")
    expect(page.locator("#send")).to_be_visible()


@pytest.mark.promise("P1")
def test_escape_while_the_page_loads_is_not_lost(page: Page, site: Site) -> None:
    begin_story(page, site)
    held = hold_the_first(page, RUN)
    page.reload()
    run_state(page, "Loading")
    page.keyboard.press("Escape")
    held[0].continue_()
    run_state(page, "Stopped")


@pytest.mark.promise("P8")
def test_escape_while_a_page_with_a_question_loads_does_not_withdraw_it(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "deploy it")
    run_state(page, "Waiting for you")
    asked = requests_of(page, "/cancel")
    page.reload()
    page.keyboard.press("Escape")
    page.locator(".approval").wait_for()
    assert asked == []
    assert page.request.get(f"{site.url}runs/{run_id}").json()["run"]["interrupts"]


def test_there_is_nothing_to_send_to_a_run_that_does_not_exist(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/runs/nothing")
    run_state(page, "Not found")
    expect(page.get_by_role("alert")).to_have_text("There is no run with this id.")
    expect(page.locator("#draft")).to_be_hidden()


@pytest.mark.promise("P4")
def test_what_was_left_behind_is_followed_to_its_end(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "lag behind")
    page.locator(".tool[data-state=running]").wait_for()
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    expect(page.locator("#receipt .left")).to_contain_text("Still running: tool lagging")
    expect(page.locator("#receipt .late")).to_have_text(re.compile(r"lagging finished [\d.]+ m?s after the end\."))
    expect(page.locator("#receipt .left")).to_have_text("Nothing is left running.")


@pytest.mark.promise("P1")
def test_a_stop_that_waits_for_the_network_is_delivered_after_its_page_was_left(page: Page, site: Site) -> None:
    page.goto(site.wired)
    run_id = prompt(page, "stream a story")
    answer(page, "The harbour")
    site.tell("cut")
    try:
        page.keyboard.press("Escape")
        state_is(page, "Stop not delivered yet")
        page.get_by_role("link", name="New", exact=True).click()
        expect(page.locator("#send")).to_be_visible()
    finally:
        site.tell("mend")
    row = page.locator(f"a.run-row[href='#/runs/{run_id}']")
    expect(row.locator(".pill")).to_have_text("Stopped")


# --- Impatience ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P8")
def test_enter_twice_is_one_prompt(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "hello")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    started = requests_of(page, "/runs")
    page.fill("#draft", "stream the next one")
    page.evaluate("""() => {
      const enter = () => document.getElementById("draft").dispatchEvent(
        new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
      enter();
      enter();
    }""")
    wait_for_run_after(page, run_id)
    answer(page, "The harbour")
    assert [each["prompt"] for each in started] == ["stream the next one"]
    expect(page.get_by_role("alert")).to_have_count(0)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


@pytest.mark.promise("P8")
def test_a_prompt_that_is_sent_again_because_the_response_was_lost_is_one_run(page: Page, site: Site) -> None:
    page.goto(site.url)
    started: list[str] = []

    def lose(route: Route) -> None:
        if started or route.request.method != "POST":
            route.continue_()
            return
        started.append(route.fetch().json()["run"]["id"])
        route.abort()

    page.route("**/runs", lose)
    page.fill("#draft", "hello again")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    assert prompt(page, "hello again") == started[0]


@pytest.mark.promise("P8")
def test_continue_pressed_twice_is_one_run(page: Page, site: Site) -> None:
    run_id = begin_story(page, site)
    page.keyboard.press("Escape")
    page.locator("#action-continue").wait_for()
    made = requests_of(page, "/continue")
    page.evaluate("""() => {
      document.getElementById("action-continue").click();
      document.getElementById("action-continue").click();
    }""")
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")
    assert len(made) == 1


# --- Networks and tabs -----------------------------------------------------------------------------------------------


@pytest.mark.promise("P3")
def test_when_the_network_is_back_the_old_line_is_not_trusted(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "Somebody had left")
    with page.expect_request("**/runs/*/events") as again:
        page.evaluate("dispatchEvent(new Event('online'))")
    assert int(again.value.headers["last-event-id"]) > 3
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    words = page.locator(".entry.assistant .words")
    expect(words).to_contain_text("The harbour lay still. Somebody had left")  # nothing twice, nothing lost


@pytest.mark.promise("P1")
def test_many_tabs_leave_a_connection_for_the_stop(context: BrowserContext, site: Site) -> None:
    """A browser has six connections to one server. Tabs that nobody looks at must not use them all up."""
    page = context.new_page()
    begin_story(page, site)
    for _ in range(5):
        other = context.new_page()
        other.goto(page.url)
        answer(other, "The harbour")
        look_away(other, away=True)
    seventh = context.new_page()
    seventh.goto(site.url)
    seventh.locator(".run-row").first.wait_for()
    page.locator("#stop").click()
    run_state(page, "Stopped")
    look_away(other, away=False)
    run_state(other, "Stopped")  # it has caught up
    expect(other.locator("#connection")).to_be_hidden()
