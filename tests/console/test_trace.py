"""The trace: model calls, tools and the agents that tools started, as a tree that stays small."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from .conftest import Site
from .console import prompt, run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def row(page: Page, name: str) -> Locator:
    """The rows of this name."""
    return page.locator("#trace li", has=page.locator(f":scope > details > summary > .trace-name:text-is('{name}')"))


def press(rows: Locator) -> None:
    """Open or close a row."""
    rows.first.locator(":scope > details > summary").click()


def test_four_hundred_tools_and_an_agent_are_a_small_page_that_opens(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "swarm of them")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    page.locator("#trace > summary").click()
    expect(page.locator("#trace > summary")).to_have_text("Trace: 2 model calls, 400 tools")
    expect(page.locator("#trace .trace-name")).to_have_text(["scripted, turn 1", "scripted, turn 2"])
    press(row(page, "scripted, turn 1"))
    names = page.locator("#trace .trace-rows .trace-rows .trace-name")
    expect(names).to_have_text(["tick x250", "tick", "tick x148", "helper"])
    expect(row(page, "tick").first).to_contain_text("250 is not counted")
    press(row(page, "helper"))
    helper = row(page, "helper").first
    expect(helper).to_contain_text("630 in · 25 out")
    expect(helper.locator(".trace-name")).to_have_text(["helper", "scripted, turn 1", "scripted, turn 2"])
    press(row(page, "tick x250"))
    group = row(page, "tick x250").first
    expect(group.locator("li")).to_have_count(50)
    group.get_by_role("button", name="Show 50 of 200 more").click()
    expect(group.locator("li")).to_have_count(100)
    nodes, height = page.evaluate("[document.querySelectorAll('main *').length, document.documentElement.scrollHeight]")
    assert nodes < 3000, nodes
    assert height < 8000, height


def test_many_tools_of_an_answer_are_folded_in_its_place(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "swarm of them")
    run_state(page, "Finished")
    first = page.locator(".entry.assistant").first
    expect(first.locator(":scope > .blocks > *").first).to_have_text("I count to many.")
    fold = first.locator(".fold")
    expect(fold.locator("summary")).to_have_text(" tick x398 completed")
    expect(fold.locator(".tool")).to_have_count(0)
    fold.locator("summary").click()
    expect(fold.get_by_role("group", name="Tool tick")).to_have_count(50)
    expect(first.locator(":scope > .blocks > .tool[data-state=failed]")).to_have_count(1)  # what failed is not hidden


def test_the_trace_and_the_receipt_have_the_same_figures(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    page.locator("#trace > summary").click()
    press(row(page, "scripted, turn 2"))
    build = row(page, "build").first
    expect(build).to_have_attribute("data-state", "running")
    build.get_by_role("button", name="Stop build").click()  # each call can be stopped here, too
    expect(build).to_have_attribute("data-state", "cancelled")
    run_state(page, "Finished")
    usage = page.request.get(f"{site.url}runs/{run_id}").json()["receipt"]["usage"]
    told = page.locator("#trace .trace-figures").all_inner_texts()
    read = [re.fullmatch(r"([\d,]+) in · ([\d,]+) out · \$[\d.]+", each) for each in told if each]
    sums = [sum(int(each[part].replace(",", "")) for each in read if each) for part in (1, 2)]
    assert sums == [usage["tokens"][each]["value"] for each in ("input", "output")]
