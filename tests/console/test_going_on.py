"""After a stop: continue, steer, retry, undo; and the questions to a person."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import answer, begin_story, prompt, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def stopped_story(page: Page, site: Site) -> str:
    run_id = begin_story(page, site)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    return run_id


def test_continue(page: Page, site: Site) -> None:
    run_id = stopped_story(page, site)
    page.get_by_role("button", name="Continue").click()
    run_state(page, "Finished")
    assert not page.url.endswith(run_id)
    answer(page, "Hello there.")
    expect(page.locator(".segment")).to_contain_text("The harbour")


def test_steer_after_a_stop_is_the_next_prompt_of_the_session(page: Page, site: Site) -> None:
    run_id = stopped_story(page, site)
    page.locator("#action-steer").click()
    expect(page.locator("#draft")).to_be_focused()
    page.keyboard.type("hello instead")
    page.keyboard.press("Enter")
    expect(page.locator(".entry.user .words").last).to_have_text("hello instead")
    run_state(page, "Finished")
    new = page.url.rpartition("/")[2]
    first, second = (page.request.get(f"{site.url}runs/{each}").json()["run"] for each in (run_id, new))
    assert first["session"] == second["session"]


def test_steer_while_running(page: Page, site: Site) -> None:
    run_id = begin_story(page, site)
    expect(page.locator("#steer")).to_be_hidden()
    page.fill("#draft", "stream about a mountain instead")
    page.locator("#steer").click()
    expect(page.locator(".entry.user .words").last).to_have_text("stream about a mountain instead")
    expect(page.locator(".notice.steer")).to_be_visible()
    expect(page.locator("#draft")).to_have_value("")
    assert page.url.endswith(run_id)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


def test_retry_asks_the_same_again(page: Page, site: Site) -> None:
    run_id = stopped_story(page, site)
    page.locator("#action-retry").click()
    wait_for_run_after(page, run_id)
    expect(page.locator(".entry.user .words").last).to_have_text("stream a story")
    answer(page, "The harbour")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")


def test_undo(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "write it down")
    answer(page, "The harbour")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#action-undo").click()
    expect(page.locator("#undone li")).to_have_text("writeundone")
    expect(page.locator("#connection")).to_have_text("1 of 1 undone.")


@pytest.mark.parametrize("decision", ["Approve", "Deny"])
def test_one_question_is_answered_with_one_press(page: Page, site: Site, decision: str) -> None:
    page.goto(site.url)
    run_id = prompt(page, "deploy it")
    run_state(page, "Waiting for you")
    card = page.get_by_role("article", name="Approve deploy?")
    expect(card).to_contain_text('"version": "1.4.2"')
    if decision == "Deny":
        card.get_by_label("Reason").fill("not on a Friday")
    with page.expect_request("**/resume") as resumed:
        card.get_by_role("button", name=f"{decision} deploy").click()
    given = {"type": "approve"} if decision == "Approve" else {"type": "deny", "reason": "not on a Friday"}
    assert [each["answer"] for each in json.loads(resumed.value.post_data or "")["answers"]] == [given]
    answer(page, "That is settled.")
    run_state(page, "Finished")
    assert not page.url.endswith(run_id)
    said = "deployed 1.4.2 to production" if decision == "Approve" else "not on a Friday"
    expect(page.get_by_role("group", name="Tool deploy").locator("pre").last).to_contain_text(said)


def test_several_questions_are_sent_together(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "ask first")
    send = page.locator("#send-answers")
    expect(send).to_be_disabled()
    page.get_by_role("button", name="Approve deploy").click()
    expect(send).to_be_enabled()  # one may be sent before the other
    page.get_by_role("button", name="Deny announce").click()
    with page.expect_request("**/resume") as resumed:
        send.click()
    answers = json.loads(resumed.value.post_data or "")["answers"]
    assert [each["answer"]["type"] for each in answers] == ["approve", "deny"]
    answer(page, "That is settled.")
    outcomes = page.locator("#receipt .receipt-tools li")
    expect(outcomes).to_have_text([re.compile("deploycompleted"), re.compile("announcenever started")])


def test_what_the_server_cannot_do_is_said(page: Page, site: Site) -> None:
    stopped_story(page, site)
    body = json.dumps({"error": {"code": "not_implemented", "message": "It cannot continue.", "todo": "Ask again."}})
    page.route("**/continue", lambda route: route.fulfill(status=501, body=body, content_type="application/json"))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_have_text("It cannot continue. Ask again.")
