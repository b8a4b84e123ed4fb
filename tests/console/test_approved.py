"""What is left of an approval: a line in the conversation, an approval in advance that can be taken back, the audit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import answer, prompt, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4", "P9"), pytest.mark.timeout(180)]

HERE = re.compile(r"^Approved on this machine, \d\d:\d\d$")


def approve(page: Page, run_id: str) -> None:
    page.get_by_role("button", name="Approve deploy").click()
    wait_for_run_after(page, run_id)
    answer(page, "That is settled.")
    run_state(page, "Finished")


def next_prompt(page: Page, text: str) -> None:
    before = page.url.rpartition("/")[2]
    page.fill("#draft", text)
    page.keyboard.press("Enter")
    wait_for_run_after(page, before)


def test_who_approved_is_a_line_in_the_conversation_that_stays(page: Page, tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    site = Site("--keys", f"--store={store}")
    page.add_init_script("sessionStorage['quiesce.key'] = 'the-key-of-the-console-tests'")
    page.goto(site.url)
    approve(page, prompt(page, "deploy it"))
    address = page.url.partition("#")[2]
    line = page.locator(".tool-record").last
    expect(line).to_have_text(re.compile(r"^Approved by key tests, \d\d:\d\d$"))
    said = line.inner_text()
    page.reload()
    expect(page.locator(".tool-record").last).to_have_text(said)
    messages = page.evaluate(
        "id => fetch(`runs/${id}`, { headers: { Authorization: 'Bearer the-key-of-the-console-tests' } })"
        ".then((response) => response.text())",
        address.rpartition("/")[2],
    )
    assert "Approved by" not in json.dumps(json.loads(messages)["messages"]), "the model is not told"
    site.close()
    again = Site("--keys", f"--store={store}")
    page.goto(f"{again.url}#{address}")
    expect(page.locator(".tool-record").last).to_have_text(said)
    next_prompt(page, "hello again")  # now it is an earlier prompt of the session
    run_state(page, "Finished")
    page.reload()
    expect(page.locator(".segment .tool-record")).to_have_text(said)
    page.goto(f"{again.url}#/audit")
    rows = page.locator(".audit tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("testsApproved")
    expect(rows.nth(1)).to_contain_text("deploy")
    again.close()


def test_an_approval_for_the_session_until_it_is_taken_back(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = prompt(page, "deploy it")
    page.get_by_label("If you approve, it counts for").select_option("session")
    with page.expect_request("**/resume") as resumed:
        approve(page, first)
    (given,) = json.loads(resumed.value.post_data or "")["answers"]
    assert given["remember"] == {"scope": "session"}
    next_prompt(page, "deploy it once more")
    run_state(page, "Finished")
    expect(page.locator(".tool-record").last).to_have_text(
        re.compile(r"^Approved in advance on this machine, \d\d:\d\d$")
    )
    address = page.url
    page.goto(f"{site.url}#/inbox")
    take_back = page.get_by_role("button", name="Take back the approval of deploy")
    expect(page.locator(".standing li")).to_contain_text("as long as the session")
    take_back.click()
    expect(page.locator(".standing li")).to_have_count(0)
    expect(page.get_by_role("heading", name="Approved in advance")).to_be_focused()
    page.goto(address)
    run_state(page, "Finished")
    next_prompt(page, "deploy it a third time")
    page.get_by_role("article", name="Approve deploy?").wait_for()
    page.locator("#action-dismiss").click()
    run_state(page, "No longer waiting")


def test_an_approval_for_calls_like_this_one_and_a_later_no(page: Page, site: Site) -> None:
    page.goto(site.url)
    first = prompt(page, "deploy it")
    card = page.get_by_role("article", name="Approve deploy?")
    card.get_by_label("If you approve, it counts for").select_option("pattern")
    card.get_by_label("How version is compared").select_option("like")
    expect(card.get_by_label("The value of environment")).not_to_be_editable()
    card.get_by_label("The value of version").fill("1.*")
    card.get_by_label("How long").select_option("for 15 minutes")
    with page.expect_request("**/resume") as resumed:
        approve(page, first)
    (given,) = json.loads(resumed.value.post_data or "")["answers"]
    pattern = {"environment": {"equals": "production"}, "version": {"like": "1.*"}}
    assert given["remember"] == {"scope": "agent", "expires_in": 900, "arguments": pattern}
    page.goto(site.url)
    prompt(page, "deploy in another session")
    run_state(page, "Finished")
    page.goto(f"{site.url}#/inbox")
    expect(page.locator(".standing li")).to_contain_text('deploy with environment = "production" and version like 1.*')
    expect(page.locator(".standing li")).to_contain_text("in all sessions of writer, until")
    page.goto(site.url)
    prompt(page, "ask in a third session")  # announce is asked about, and deploy is not
    page.get_by_role("article", name="Approve announce?").wait_for()
    expect(page.get_by_role("article", name="Approve deploy?")).to_have_count(0)
    for approval in page.request.get(f"{site.url}approvals").json()["approvals"]:
        page.request.delete(f"{site.url}approvals/{approval['id']}")
    page.locator("#action-dismiss").click()


def test_the_audit_has_what_was_done_the_newest_first(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "stream a story to audit")
    answer(page, "The harbour")
    page.get_by_text("More ways to stop").click()
    page.get_by_label("Reason").fill("enough for today")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.get_by_role("link", name="Audit", exact=True).click()
    rows = page.locator(".audit tbody tr")
    expect(rows.nth(0)).to_contain_text("Stopped")
    expect(rows.nth(1)).to_contain_text("stream a story to audit")
    expect(rows.nth(1)).to_contain_text("this machine")
    page.get_by_label("Which actions").select_option("start")
    expect(rows.nth(0)).to_contain_text("stream a story to audit")
    rows.nth(0).get_by_role("link", name="Started").click()
    page.wait_for_url(f"**/#/runs/{run_id}")
