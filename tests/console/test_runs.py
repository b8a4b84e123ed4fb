"""Starting, watching and stopping, in a real browser against a real server."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from .conftest import Site
from .console import announced, answer, begin_story, prompt, run_state, seen, state_is, watch

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def test_start_and_watch(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "hello, who are you?")
    answer(page, "Hello there.")
    run_state(page, "Finished")
    expect(page.locator(".entry.user .words")).to_have_text("hello, who are you?")
    expect(page.locator("#receipt [data-fact='Tokens out']")).to_contain_text("4reported")
    expect(page.locator("#receipt")).to_contain_text("Nothing is left running")
    expect(page.locator("#draft")).to_have_value("")


def test_a_tool_shows_its_progress(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    tool = page.get_by_role("group", name="Tool build")
    expect(tool.locator(".tool-progress")).to_contain_text("compiling parser")
    expect(tool.locator("progress")).to_have_attribute("value", re.compile(r"0\.\d+"))
    expect(page.get_by_role("group", name="Tool search").locator(".tool-state")).to_have_text("completed")
    state_is(page, "Running build")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


@pytest.mark.promise("P1", "P3")
def test_stop_in_the_stream(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "Somebody had left a lamp")
    page.locator("#stop").click()
    run_state(page, "Stopped")
    receipt = page.locator("#receipt")
    expect(receipt.locator("[data-fact=Cause]")).to_contain_text("Stop was pressed in the console")
    expect(receipt.locator("[data-fact=When]")).to_contain_text("while the model was answering")
    expect(receipt.locator("[data-fact='Tokens out']")).to_contain_text("estimated")
    expect(receipt.locator("[data-fact='Tokens out'] .note")).to_have_text(re.compile(r"^\d+ (to \d+|or more)$"))
    expect(receipt.locator("[data-fact=Cost]")).to_contain_text("about $")
    expect(receipt.locator("[data-fact=Kept]")).to_contain_text("characters")
    expect(page.locator(".words.torn")).to_contain_text("Somebody had left a lamp")
    expect(page.locator(".notice.cut")).to_be_visible()
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#stop")).to_be_hidden()
    label = page.locator("svg.timeline").get_attribute("aria-label") or ""
    assert "Stop asked for" in label
    assert "which cut the answer" in label


@pytest.mark.promise("P1")
def test_stopped_is_said_when_it_is_true_and_not_before(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    at_once = page.evaluate("""() => {
      document.getElementById("stop").click();
      return document.getElementById("state-line").textContent;
    }""")
    assert at_once == "Stopping: waiting for build, 0 s"  # in the very task of the click: no answer was waited for
    watch(page)
    run_state(page, "Stopped")
    assert page.request.get(f"{site.url}runs/{run_id}").json()["run"]["state"] == "ended"
    assert "Stopping: waiting for build, 1 s" in seen(page)
    assert announced(page)[-1] == "Stopped"
    assert all(state.startswith("Stopping") for state in announced(page)[:-1]), announced(page)
    tools = page.locator("#receipt .receipt-tools li")
    expect(tools).to_have_count(2)
    expect(tools.nth(1)).to_contain_text("cancelled while running")
    expect(page.locator("#receipt [data-fact='Waited for']")).to_contain_text("build")


@pytest.mark.promise("P1")
def test_while_the_server_says_stopping_so_does_the_page(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "stubborn work")
    page.locator(".tool[data-state=running]").wait_for()
    page.keyboard.press("Escape")
    state_is(page, "Stopping: waiting for stubborn, 2 s")
    assert page.request.get(f"{site.url}runs/{run_id}").json()["run"]["state"] == "stopping"
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


@pytest.mark.promise("P1")
def test_stopping_again_escalates(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stubborn work")
    page.locator(".tool[data-state=running]").wait_for()
    stop = page.locator("#stop")
    stop.click()
    state_is(page, "Stopping: waiting for stubborn")
    expect(stop).to_have_text("Force stop")
    stop.click()
    run_state(page, "Stopped")
    expect(page.locator("#receipt [data-fact='At rest']")).to_contain_text("forced")
    expect(page.locator("#receipt .receipt-tools li")).to_contain_text("abandoned, may still be running")
    expect(page.locator("#receipt .left")).to_contain_text("Still running: tool stubborn")


@pytest.mark.promise("P8")
def test_one_tool_is_stopped_and_the_run_goes_on(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    tool = page.get_by_role("group", name="Tool build")
    tool.get_by_role("button", name="Stop only the tool build").click()
    answer(page, "The build is done.")
    run_state(page, "Finished")
    expect(tool.locator(".tool-state")).to_have_text("cancelled while running")


def test_stop_after_this_turn_lets_the_tool_finish(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "measure it")
    page.get_by_role("group", name="Tool measure").wait_for()
    page.locator("#stop-later").click()
    run_state(page, "Stopped")
    expect(page.locator("#receipt [data-fact='At rest']")).to_contain_text("after the turn")
    expect(page.locator("#receipt .receipt-tools li")).to_have_text(re.compile("measure.*completed"))


@pytest.mark.promise("P8")
@pytest.mark.case("claude-code#6643")
def test_escape_stops_and_keeps_the_draft(page: Page, site: Site) -> None:
    begin_story(page, site)
    page.fill("#draft", "a thought that is not finished")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    expect(page.locator("#draft")).to_have_value("a thought that is not finished")
    page.keyboard.press("Escape")  # nothing is running: nothing happens
    expect(page.locator("#draft")).to_have_value("a thought that is not finished")
    page.reload()
    expect(page.locator("#draft")).to_have_value("a thought that is not finished")


def begin_draft(page: Page, site: Site) -> None:
    """A short answer that has stalled: nothing moves."""
    page.goto(site.url)
    prompt(page, "draft it")
    answer(page, "inline code")
    page.locator(".timeline-card svg").first.wait_for()
    run_state(page, "Answering")


GROW = """(height) => {
  const lines = document.createElement("div");
  lines.style.height = `${height}px`;
  document.querySelector(".composer").append(lines);
}"""


@pytest.mark.promise("P1")
@pytest.mark.parametrize("by", [60, 300])
def test_a_press_on_stop_counts_although_the_button_moves_under_the_pointer(page: Page, site: Site, by: int) -> None:
    """Something below pushes the button up while it is pressed: the browser sees no click on it then."""
    begin_draft(page, site)
    box = page.locator("#stop").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.evaluate(GROW, by)
    moved = page.locator("#stop").bounding_box()
    assert moved is not None
    assert moved["y"] <= box["y"] - 20, "the button has not moved away"
    page.mouse.up()
    run_state(page, "Stopped")


@pytest.mark.promise("P4")
def test_a_press_that_is_dragged_away_from_stop_is_none(page: Page, site: Site) -> None:
    begin_draft(page, site)
    page.locator("#stop").hover()
    page.mouse.down()
    page.mouse.move(300, 100, steps=3)
    page.mouse.up()
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
    expect(page.locator("#stop")).to_have_text("Stop")
    expect(page.locator(".composer")).to_have_attribute("data-mode", "running")
    box = page.locator("#stop").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 20, steps=3)  # it slides, and stays on the button
    page.mouse.up()
    run_state(page, "Stopped")


def test_a_double_click_on_stop_neither_forces_nor_sends_the_draft(page: Page, site: Site) -> None:
    run_id = begin_story(page, site)
    page.fill("#draft", "do not send me")
    page.locator("#stop").dblclick()
    run_state(page, "Stopped")
    expect(page.locator("#receipt [data-fact='At rest']")).to_contain_text("mode: now")
    expect(page.locator("#draft")).to_have_value("do not send me")
    assert page.url.endswith(run_id)


def test_escape_while_it_starts_stops_it_as_soon_as_it_has_begun(page: Page, site: Site) -> None:
    page.goto(site.url)

    def slow_start(route: Route) -> None:
        if route.request.method == "POST":
            page.wait_for_timeout(300)
        route.continue_()

    page.route("**/runs", slow_start)
    page.fill("#draft", "stream a story")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.wait_for_url("**/#/runs/*")
    run_state(page, "Stopped")


@pytest.mark.promise("P7")
def test_reload_in_the_middle(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stubborn work")
    page.locator(".tool[data-state=running]").wait_for()
    page.reload()
    expect(page.locator(".entry.user .words")).to_have_text("stubborn work")
    answer(page, "This takes a while.")
    state_is(page, "Running stubborn")
    page.keyboard.press("Escape")
    state_is(page, "Stopping: waiting for stubborn")
    page.reload()
    state_is(page, "Stopping: waiting for stubborn")
    expect(page.locator("#stop")).to_have_text("Force stop")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.reload()
    run_state(page, "Stopped")
    expect(page.locator("#receipt")).to_contain_text("abandoned, may still be running")
    label = page.locator("svg.timeline").get_attribute("aria-label") or ""
    assert re.search(r"tool stubborn from .* for [\d.]+ m?s, abandoned.*Stop asked for", label), label


@pytest.mark.promise("P3")
def test_network_cut_in_the_middle(page: Page, site: Site) -> None:
    page.goto(site.wired)
    run_id = prompt(page, "stream a story")
    answer(page, "The harbour")
    site.tell("cut")
    try:
        expect(page.locator("#connection")).to_contain_text("Connection lost")
        before = page.locator(".entry.assistant .words").inner_text()
    finally:
        site.tell("mend")
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.locator(".entry.assistant .words")).not_to_have_text(before)
    page.locator("#stop").click()
    run_state(page, "Stopped")
    said = page.request.get(f"{site.url}runs/{run_id}").json()["messages"][-1]["content"][0]["text"]
    shown = page.locator(".entry.assistant .words").text_content() or ""
    assert "".join(shown.split()) == "".join(said.split())  # nothing twice, nothing lost


@pytest.mark.promise("P4")
def test_a_stop_without_network_says_so_and_is_delivered_later(page: Page, site: Site) -> None:
    page.goto(site.wired)
    prompt(page, "stream a story")
    answer(page, "The harbour")
    site.tell("cut")
    try:
        page.keyboard.press("Escape")
        state_is(page, "Stop not delivered yet")
    finally:
        site.tell("mend")
    run_state(page, "Stopped")


@pytest.mark.promise("P7", "P8")
def test_two_tabs(page: Page, context: BrowserContext, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    other = context.new_page()
    other.goto(page.url)
    other.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    other.fill("#draft", "mine")
    watch(other)
    page.get_by_role("group", name="Tool build").wait_for()
    page.locator("#stop").click()
    run_state(page, "Stopped")
    run_state(other, "Stopped")
    assert announced(other)[-2:] == ["Stopping: waiting for build", "Stopped"]
    expect(other.locator("#draft")).to_have_value("mine")
    expect(other.locator("#receipt")).to_contain_text("Stop was pressed in the console")


def test_the_list_is_live(page: Page, context: BrowserContext, site: Site) -> None:
    page.goto(site.url)
    other = context.new_page()
    other.goto(site.url)
    run_id = prompt(other, "stream a story for the list")
    row = page.locator(f"a.run-row[href='#/runs/{run_id}']")
    expect(row.locator(".pill")).to_have_text("Running")
    expect(row.locator(".run-tail")).to_contain_text("harbour")
    other.keyboard.press("Escape")
    expect(row.locator(".pill")).to_have_text("Stopped")
    row.click()
    run_state(page, "Stopped")


def test_usage_page(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "hello")
    run_state(page, "Finished")
    page.get_by_role("link", name="Usage").click()
    expect(page.locator("svg.chart")).to_have_attribute("aria-label", re.compile(r"Cost per day.*\$0\.\d+"))
    by_day = page.get_by_role("region", name="Usage by day, model and agent").locator("tbody tr")
    expect(by_day.filter(has_text="writer")).to_have_count(1)
    expect(page.locator(".totals")).to_contain_text("Tokens in")


def test_a_run_that_does_not_exist(page: Page, site: Site) -> None:
    page.goto(f"{site.url}#/runs/nothing")
    run_state(page, "Not found")
    expect(page.get_by_role("alert")).to_contain_text("no run with this id")


def test_a_key_is_asked_for_and_kept_for_the_tab(page: Page, keyed_site: Site) -> None:
    from .site import KEY

    page.goto(keyed_site.url)
    page.get_by_label("API key").fill("wrong-wrong-wrong-wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-error")).to_contain_text("valid API key")
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.locator("#key-dialog")).to_be_hidden()
    prompt(page, "stream a story")
    answer(page, "The harbour")
    page.reload()
    answer(page, "The harbour")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
