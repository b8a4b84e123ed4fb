"""What goes wrong on real days: keys held down, impatient people, storage that is full, networks that come and go."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from .conftest import Site
from .console import answer, prompt, run_state, state_is

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]

RUN = re.compile(r"/runs/[0-9a-f]+$")


def requests_of(page: Page, path: str, method: str = "POST") -> list[Any]:
    """The bodies of all requests to paths that end so, as they are made."""
    made: list[Any] = []

    def note(request: Any) -> None:
        if request.method == method and request.url.partition("?")[0].endswith(path):
            made.append(json.loads(request.post_data) if request.post_data else None)

    page.on("request", note)
    return made


def look_away(page: Page, *, away: bool) -> None:
    """As if the person had gone to another tab, or come back."""
    page.evaluate(
        """away => {
          Object.defineProperty(document, "hidden", { value: away, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        away,
    )


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
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/runs/*/events", hold_the_first)  # the end of the run does not reach the page by this line

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
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "The harbour")
    page.fill("#draft", "a draft that cannot be kept")
    page.locator("#stop").click()
    run_state(page, "Stopped")
    expect(page.locator("#draft")).to_have_value("a draft that cannot be kept")
    expect(page.locator("#send")).to_be_visible()


@pytest.mark.promise("P1")
def test_escape_while_the_page_loads_is_not_lost(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "The harbour")
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route(RUN, hold_the_first)
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
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=run_id)
    answer(page, "The harbour")
    assert [each["prompt"] for each in started] == ["stream the next one"]
    expect(page.get_by_role("alert")).to_have_count(0)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


@pytest.mark.promise("P8")
def test_continue_pressed_twice_is_one_run(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "stream a story")
    answer(page, "The harbour")
    page.keyboard.press("Escape")
    page.locator("#action-continue").wait_for()
    made = requests_of(page, "/continue")
    page.evaluate("""() => {
      document.getElementById("action-continue").click();
      document.getElementById("action-continue").click();
    }""")
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=run_id)
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
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "The harbour")
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


# --- What is asked ---------------------------------------------------------------------------------------------------


def ask_until(page: Page, *seconds: float) -> None:
    """Let the questions of a run have so much time each."""

    def limited(route: Route) -> None:
        response = route.fetch()
        detail = response.json()
        for interrupt, left in zip(detail["run"]["interrupts"], seconds, strict=False):
            interrupt["expires_at"] = time.time() + left
        route.fulfill(response=response, json=detail)

    page.route(RUN, limited)


def test_a_question_whose_time_is_over_cannot_be_answered(page: Page, site: Site) -> None:
    page.goto(site.url)
    ask_until(page, 1.0)
    prompt(page, "deploy it")
    card = page.get_by_role("article", name="Approve deploy?")
    expect(card).to_contain_text("Answer until")
    expect(card).to_contain_text("The time to answer is over")
    expect(card.get_by_role("button", name="Approve deploy")).to_be_disabled()
    with page.expect_request("**/resume") as resumed:
        page.get_by_role("button", name="Go on without an answer").click()
    assert json.loads(resumed.value.post_data or "") == {"answers": []}
    page.unroute_all(behavior="wait")


def test_one_of_two_that_runs_out_does_not_hold_up_the_other(page: Page, site: Site) -> None:
    page.goto(site.url)
    ask_until(page, 1.0, 600.0)
    prompt(page, "ask first")
    page.get_by_role("button", name="Approve announce").click()
    expect(page.get_by_role("article", name="Approve deploy?")).to_contain_text("The time to answer is over")
    with page.expect_request("**/resume") as resumed:
        page.locator("#send-answers").click()
    given = json.loads(resumed.value.post_data or "")["answers"]
    assert [each["answer"] for each in given] == [{"type": "approve"}]
    page.unroute_all(behavior="wait")


def test_a_question_can_be_withdrawn(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "deploy it")
    page.locator("#action-dismiss").click()
    expect(page.locator(".approval")).to_have_count(0)
    run_state(page, "No longer waiting")
    expect(page.locator("#receipt .receipt-tools li")).to_contain_text("no longer waits here")
    assert page.request.get(f"{site.url}runs/{run_id}").json()["run"]["interrupts"] == []
    page.fill("#draft", "hello again")
    page.keyboard.press("Enter")
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=run_id)
    run_state(page, "Finished")


def test_undo_is_offered_where_there_is_something_to_undo(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "deploy it")
    page.locator("#action-retry").wait_for()
    expect(page.locator("#action-undo")).to_have_count(0)
    page.goto(site.url)
    prompt(page, "write it down")
    answer(page, "The harbour")
    page.keyboard.press("Escape")
    page.locator("#action-undo").click()
    expect(page.locator("#undone li")).to_have_text("writeundone")
    expect(page.locator("#action-undo")).to_have_count(0)  # it is done


def test_a_question_that_was_answered_is_nowhere_shown_as_waiting(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "deploy it")
    page.get_by_role("button", name="Approve deploy").click()
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=run_id)
    run_state(page, "Finished")
    page.get_by_role("link", name="All runs", exact=True).click()
    expect(page.locator(f"a[href='#/runs/{run_id}'] .pill")).to_have_text("No longer waiting")
    page.locator(f"a[href='#/runs/{run_id}']").click()
    run_state(page, "No longer waiting")


# --- Much of everything ----------------------------------------------------------------------------------------------


@pytest.mark.promise("P3")
def test_a_very_long_result_can_be_read_to_its_end(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "flood me")
    run_state(page, "Finished")
    tool = page.get_by_role("group", name="Tool flood")
    tool.locator("summary").click()
    result = tool.get_by_label("Result of flood")
    expect(result).to_contain_text("more characters")
    expect(result).not_to_contain_text("the very last line")
    tool.get_by_role("button", name="Show all 300,018 characters").click()
    expect(result).to_contain_text("the very last line")
    expect(result).to_be_focused()


@pytest.mark.promise("P3")
def test_retry_of_a_run_whose_beginning_is_gone_asks_the_whole_question(page: Page, site: Site) -> None:
    page.goto(site.url)
    long = "hello " + "and then something that matters, " * 20
    first = page.request.post(f"{site.url}runs", data={"prompt": long}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"]
    end = {"type": "run_ended", "stop_reason": "end_turn", "receipt": receipt, "error": None}
    frames = [{"type": "gap", "first": 1, "last": 899}, end]
    body = "".join(f"id: {n}\ndata: {json.dumps(each)}\n\n" for n, each in enumerate(frames, 900))
    page.route("**/runs/*/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.reload()
    started = requests_of(page, "/runs")
    page.locator("#action-retry").click()
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=first)
    assert started[0]["prompt"] == long


@pytest.mark.promise("P3")
def test_thousands_of_events_are_all_shown(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "chatter")
    run_state(page, "Finished")
    said = page.request.get(f"{site.url}runs/{run_id}").json()["messages"][-1]["content"][0]["text"]
    assert len(said) > 50_000
    all_shown = "said => document.querySelector('.entry.assistant .words')?.textContent === said"
    page.wait_for_function(all_shown, arg=said)
    page.reload()
    run_state(page, "Finished")
    page.wait_for_function(all_shown, arg=said)  # the end is known before all that led to it is read again


def test_the_picture_of_a_run_of_hours_can_be_drawn(page: Page, site: Site) -> None:
    page.goto(site.url)
    drawn = page.evaluate("""async () => {
      const { timeline } = await import("./static/timeline.js");
      const { Story } = await import("./static/story.js");
      const story = new Story();
      story.apply({ type: "model_call_started", turn: 1, attempt: 1, model: "m" }, 0);
      for (let n = 0; n < 300_000; n++) story.tokens.push({ at: n / 10, total: n });
      return timeline(story, 30_000, 800).querySelectorAll("path").length;
    }""")
    assert drawn == 2


def test_the_picture_is_not_drawn_anew_for_every_word(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "stream a story")
    answer(page, "The harbour")
    drawn, words = page.evaluate("""async () => {
      const counts = [0, 0];
      const count = (index) => new MutationObserver((records) => { counts[index] += records.length; });
      const observers = [count(0), count(1)];
      observers[0].observe(document.querySelector(".picture"), { childList: true });
      const text = { characterData: true, subtree: true };
      observers[1].observe(document.querySelector(".entry.assistant .blocks"), text);
      await new Promise((resolve) => setTimeout(resolve, 2000));
      return counts;
    }""")
    assert words > 2 * drawn > 0, (words, drawn)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
