"""The inbox: everything that waits for a person in one list, with arguments that can be changed before they run."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from .conftest import Site
from .console import answer, prompt, requests_of, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def ask(page: Page, site: Site, words: str) -> str:
    """Let a run ask, without looking at it."""
    session = f"inbox-{words.replace(' ', '-')}"
    return page.request.post(f"{site.url}runs", data={"prompt": words, "session": session}).json()["run"]["id"]


def empty(page: Page, site: Site) -> None:
    """Withdraw what earlier tests have left."""
    for run in page.request.get(f"{site.url}runs?limit=1000").json()["runs"]:
        if run["interrupts"]:
            page.request.post(f"{site.url}runs/{run['id']}/cancel", data={})


def test_everything_that_waits_is_in_one_list_and_answered_there(
    page: Page, context: BrowserContext, site: Site
) -> None:
    page.goto(site.url)
    empty(page, site)
    expect(page.locator("#inbox-count")).to_be_hidden()
    ask(page, site, "deploy the first")
    ask(page, site, "ask the second")
    expect(page.locator("#inbox-count")).to_have_text("3")  # it asks two things
    page.get_by_role("link", name="Inbox").click()
    expect(page.get_by_role("status").filter(has_text="3 questions wait")).to_be_visible()
    first = page.get_by_role("group", name="Asked in deploy the first")
    second = page.get_by_role("group", name="Asked in ask the second")
    first.get_by_role("button", name="Approve deploy").click()
    expect(first).to_have_count(0)
    expect(page.locator("#inbox-count")).to_have_text("2")
    second.get_by_role("button", name="Deny announce").click()
    second.get_by_role("button", name="Approve deploy").click()
    second.get_by_role("button", name="Send the answers").click()
    expect(page.locator("main")).to_contain_text("Nothing waits for you.")
    expect(page.locator("#inbox-count")).to_be_hidden()


def test_enter_answers_what_waits_longest(page: Page, site: Site) -> None:
    page.goto(site.url)
    empty(page, site)
    run_id = ask(page, site, "deploy with the keyboard")
    page.goto(f"{site.url}#/inbox")
    expect(page.get_by_role("button", name="Approve deploy")).to_be_focused()
    with page.expect_request("**/resume") as resumed:
        page.keyboard.press("Enter")
    assert run_id in resumed.value.url
    expect(page.locator("main")).to_contain_text("Nothing waits for you.")


def test_arguments_are_changed_before_the_tool_runs(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "deploy it")
    card = page.get_by_role("article", name="Approve deploy?")
    sent = requests_of(page, "/resume")
    card.get_by_role("button", name="Change the arguments").click()
    field = card.get_by_label("Arguments of deploy, to change")
    field.fill("{ not JSON")
    card.get_by_role("button", name="Approve deploy").click()
    expect(card.get_by_role("alert")).to_have_text("The arguments are not a JSON object.")
    assert sent == []
    field.fill(json.dumps({"environment": "staging", "version": "1.4.3"}))
    card.get_by_role("button", name="Approve deploy").click()
    wait_for_run_after(page, run_id)
    answer(page, "That is settled.")
    changed = {"type": "approve", "arguments": {"environment": "staging", "version": "1.4.3"}}
    assert [each["answer"] for each in sent[0]["answers"]] == [changed]
    expect(page.get_by_role("group", name="Tool deploy").last).to_contain_text("deployed 1.4.3 to staging")


def test_arguments_that_are_kept_are_not_sent(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "deploy it")
    card = page.get_by_role("article", name="Approve deploy?")
    card.get_by_role("button", name="Change the arguments").click()
    card.get_by_label("Arguments of deploy, to change").fill('{"environment": "elsewhere"}')
    card.get_by_role("button", name="Discard my changes").click()
    with page.expect_request("**/resume") as resumed:
        card.get_by_role("button", name="Approve deploy").click()
    assert json.loads(resumed.value.post_data or "")["answers"][0]["answer"] == {"type": "approve"}
    run_state(page, "Finished")


def test_enter_in_the_reason_denies_with_it(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "deploy it")
    reason = page.get_by_label("Reason, if you deny it")
    sent = requests_of(page, "/resume")
    reason.press("Enter")  # an empty reason decides nothing
    reason.fill("not today")
    assert sent == []
    with page.expect_request("**/resume"):
        reason.press("Enter")
    assert sent[0]["answers"][0]["answer"] == {"type": "deny", "reason": "not today"}
    run_state(page, "Finished")
