"""Questions that run out of time, are withdrawn or are answered elsewhere; and the undo."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import Page, Route, expect

from .conftest import Site
from .console import RUN, answer, prompt, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


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
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")


def test_a_preview_is_shown_as_text_and_answers_are_given_one_by_one(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "edit it")
    cards = page.get_by_role("article", name="Approve edit?")
    expect(cards).to_have_count(2)
    first = cards.nth(0)
    expect(first.locator(".preview .diff-removed")).to_have_text('-    return "hello"\n')
    expect(first.locator(".preview .diff-added")).to_contain_text("<script>window.hacked=1</script>")
    expect(first.locator(".preview .diff-head")).to_have_count(3)
    expect(first).to_contain_text("utf-8")  # a default of the tool
    assert page.evaluate("window.hacked") is None
    first.get_by_role("button", name="Approve edit").click()
    page.locator("#send-answers").click()
    wait_for_run_after(page, run_id)
    resumed = page.url
    rest = page.get_by_role("article", name="Approve edit?")
    expect(rest).to_have_count(1)  # while the first call runs
    expect(rest).to_contain_text("farewell.py")
    run_state(page, "Running edit")
    rest.get_by_role("button", name="Approve edit").click()
    expect(rest).to_have_count(0)
    answer(page, "Both are changed.")
    assert page.url == resumed, "the same run has taken the second answer"


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
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")
    expect(page.locator('#receipt [data-fact="Whole task"]')).to_contain_text("2 runs: 2 turns and 1 tool call in")
    page.get_by_role("link", name="All runs", exact=True).click()
    expect(page.locator(f"a[href='#/runs/{run_id}'] .pill")).to_have_text("No longer waiting")
    page.locator(f"a.run-row[href='#/runs/{run_id}']").click()
    run_state(page, "No longer waiting")


@pytest.mark.parametrize(
    ("button", "given"), [("Go on", {"type": "approve"}), ("End the run", {"type": "deny", "reason": ""})]
)
def test_a_limit_is_raised_or_not(page: Page, site: Site, button: str, given: object) -> None:
    page.goto(site.url)
    run_id = prompt(page, "again and again")
    card = page.get_by_role("article", name="Raise the limit?")
    expect(card).to_contain_text("The tool write gave the same result to the same call 10 times in a row")
    expect(page.locator("#receipt .tool-name")).to_have_text(["write x10"])
    expect(page.locator('#receipt [data-fact="Limits"]')).to_contain_text("repeated calls 10 of 10 (reached)")
    with page.expect_request("**/resume") as resumed:
        card.get_by_role("button", name=button).click()
    assert [each["answer"] for each in json.loads(resumed.value.post_data or "")["answers"]] == [given]
    wait_for_run_after(page, run_id)
    if button == "Go on":
        answer(page, "It is written.")
    else:
        run_state(page, "Stopped at a limit")
