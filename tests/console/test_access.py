"""For everyone: with the keyboard alone, on a phone, with a screen reader; and safe from what a run says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from quiesce.server.app import STATIC

from .conftest import Site
from .console import announced, prompt, run_state, seen, state_is, wait_for_run_after, watch
from .site import NASTY

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def test_keyboard_only(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.locator("#draft").wait_for()
    tab_to(page, "draft")
    page.keyboard.type("stubborn work")
    page.keyboard.press("Enter")
    page.locator(".tool[data-state=running]").wait_for()
    tab_to(page, "stop")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    state_is(page, "Stopping: waiting for stubborn")
    expect(page.locator("#stop")).to_be_focused()
    page.keyboard.press("Enter")
    run_state(page, "Stopped")
    expect(page.locator("#draft")).to_be_focused()  # Stop is gone, and the focus is not lost with it
    page.locator("#receipt").wait_for()
    for wanted in ("action-continue", "action-steer", "action-retry"):
        tab_to(page, wanted, back=True)
    tab_to(page, "action-continue", back=True)
    page.keyboard.press("Enter")
    run_state(page, "Finished")


def tab_to(page: Page, element_id: str, *, back: bool = False) -> None:
    """Press Tab until this element has the focus."""
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == element_id:
            return
        page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"Tab does not lead to #{element_id}")


def test_phone_width(browser: Browser, site: Site) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(site.url)
    page.locator("#draft").fill("build it, and mind this_is_a_very_long_word_without_any_break_" + "x" * 80)
    page.locator("#send").tap()
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    fits(page)
    stop = page.locator("#stop")
    box = stop.bounding_box()
    assert box is not None
    assert box["height"] >= 40
    assert box["y"] + box["height"] <= 640  # in reach without scrolling
    expect(page.locator("#state-line")).to_be_in_viewport()
    stop.tap()
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    fits(page)
    for place in ("", "#/usage"):
        page.goto(site.url + place)
        page.locator(".run-row, svg.chart").first.wait_for()
        fits(page)
    context.close()


def fits(page: Page) -> None:
    """Nothing makes the page wider than the screen, and nothing sticks out of what it is in."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    out = page.evaluate("""() => {
      const cards = [...document.querySelectorAll(".composer, .card:not(.scroll), .run-row")];
      const right = (element) => element.getBoundingClientRect().right;
      return cards.flatMap((card) => [...card.querySelectorAll("*")].filter((e) => right(e) > right(card) + 0.5))
        .map((e) => e.outerHTML);
    }""")
    assert out == []


def test_the_state_is_announced_and_the_seconds_are_not(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    expect(page.locator("#state")).to_have_attribute("aria-live", "polite")
    watch(page)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    assert announced(page)[-2:] == ["Stopping: waiting for build", "Stopped"]
    assert "Stopping: waiting for build, 1 s" in seen(page)


AXE = "axe_playwright_python"


@pytest.fixture
def axe() -> str:
    package = pytest.importorskip(AXE, reason="THE CONSOLE'S ACCESSIBILITY IS NOT TESTED: axe is not installed")
    scripts = list(Path(package.__file__).parent.rglob("axe.min.js"))
    assert scripts
    return scripts[0].read_text("utf-8")


# The states of the page in which `make test` looks at the dark colours too: they have most of them.
IN_DARK = ("running", "stopped", "approval")


@pytest.mark.usefixtures("approvals_end")
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.proof)], ids=["some in dark", "all"])
def test_axe_finds_nothing_serious(browser: Browser, site: Site, axe: str, *, whole: bool) -> None:
    def check(page: Page, axe: str, where: str) -> None:
        check_colours(page, axe, where, dark=whole or where in IN_DARK)

    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(site.url)
    page.locator("#draft").wait_for()
    check(page, axe, "runs")
    prompt(page, "build it")
    page.get_by_role("group", name="Tool build").locator(".tool-progress").wait_for()
    page.fill("#draft", "a draft")
    check(page, axe, "running")
    page.keyboard.press("Escape")
    state_is(page, "Stopping")
    check(page, axe, "stopping")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    open_all(page)
    check(page, axe, "stopped")
    page.goto(site.url)
    prompt(page, "deploy it")
    page.locator(".approval").wait_for()
    check(page, axe, "approval")
    page.get_by_role("button", name="Change the arguments").click()
    page.get_by_label("If you approve, it counts for").select_option("pattern")
    page.get_by_label("How version is compared").select_option("like")
    check(page, axe, "approval of later calls")
    page.get_by_role("button", name="Approve deploy").click()
    page.locator(".tool-record").last.wait_for()
    page.goto(f"{site.url}#/inbox")
    page.locator(".standing li").wait_for()
    check(page, axe, "approved in advance")
    page.get_by_role("button", name="Take back the approval of deploy").click()
    page.goto(site.url)
    prompt(page, "deploy it again")
    page.locator(".approval").wait_for()
    page.goto(f"{site.url}#/inbox")
    page.locator(".approval").first.wait_for()
    check(page, axe, "inbox")
    page.goto(site.url)
    prompt(page, "markdown please")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    first = page.url.rpartition("/")[2]
    page.fill("#draft", "hello again")
    page.keyboard.press("Enter")
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    open_all(page)
    page.locator(".brief #receipt, .brief .receipt").wait_for()
    check(page, axe, "markdown, and a second prompt")
    page.goto(site.url + "#/usage")
    page.locator("svg.chart").wait_for()
    check(page, axe, "usage")
    page.goto(site.url + "#/audit")
    page.locator(".audit tbody tr").first.wait_for()
    check(page, axe, "audit")
    context.close()


def open_all(page: Page) -> None:
    """Open everything that is folded."""
    page.locator("details").evaluate_all("all => all.forEach((e) => { e.open = true; })")
    page.locator("#trace .trace-rows > li").first.wait_for()


def check_colours(page: Page, axe: str, where: str, *, dark: bool = True) -> None:
    """In light with all rules; in dark the colours are all that differs."""
    page.evaluate(axe)
    for scheme, rules in (("light", {}), *((("dark", {"runOnly": ["color-contrast"]}),) if dark else ())):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = page.evaluate("rules => axe.run(document, { resultTypes: ['violations'], ...rules })", rules)
        bad = [
            (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical", "moderate")
        ]
        assert not bad, f"{where}, {scheme}: {json.dumps(bad, indent=1)}"
    page.emulate_media(color_scheme="light")


# --- What a run says stays text -------------------------------------------------------------------------------------


def test_nothing_that_a_run_says_becomes_markup(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, f"nasty {NASTY}")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    open_all(page)
    for place in (".entry.user .words", ".entry.assistant .words", ".tool pre", "h1"):
        expect(page.locator(place, has_text="<img src=x").first).to_be_visible()
    clean(page)
    page.goto(site.url)
    page.locator(f"a.run-row[href='#/runs/{run_id}']").wait_for()
    expect(page.locator("#agent option").nth(1)).to_contain_text("<img src=x")
    clean(page)
    page.goto(f"{site.url}#/runs/{NASTY}")
    run_state(page, "Not found")
    clean(page)


def test_events_that_are_all_poison_stay_text(page: Page, site: Site) -> None:
    """What the core would never let through, in every field that a page shows."""
    page.goto(site.url)
    call = {"type": "tool_call", "id": NASTY, "name": NASTY, "arguments": {NASTY: NASTY}}
    result = {"call_id": NASTY, "name": NASTY, "content": [{"type": "document", "name": NASTY}], "outcome": NASTY}
    cause = {"source": NASTY, "reason": NASTY, "mode": NASTY, "at": 1.0, "origin": None}
    tokens = {name: {"value": 1, "low": 1, "high": NASTY, "source": NASTY} for name in ("input", "output")}
    receipt = {
        "stop_reason": NASTY, "cause": cause, "mode": NASTY, "phase": NASTY, "latency": 0.1, "asked_during": NASTY,
        "calls": [{"call_id": NASTY, "name": NASTY, "outcome": NASTY, "ok": False, "seconds": None}],
        "still_running": [NASTY], "waited_for": [NASTY], "kept_text": 3,
        "undo": [{"name": NASTY, "outcome": NASTY, "detail": NASTY}],
        "late": [{"name": NASTY, "ok": True, "after": 1}],
        "usage": {"calls": 1, "tokens": tokens, "cost": {"value": "1", "low": "0", "high": "2", "currency": NASTY}},
    }  # fmt: skip
    events = [
        {"type": "model_call_started", "turn": NASTY, "attempt": 1, "model": NASTY},
        {"type": "retry_scheduled", "attempt": 1, "delay": 1.0, "error": NASTY},
        {"type": "hook_failed", "hook": NASTY, "event": NASTY, "error": NASTY},
        {"type": "output_rejected", "error": NASTY, "retry": 1},
        {"type": "tool_started", "call": call},
        {"type": "tool_progress", "call_id": NASTY, "name": NASTY, "progress": {"message": NASTY}},
        {"type": "child", "call_id": NASTY, "run_id": NASTY, "event": {"type": "text", "text": NASTY}},
        {"type": "tool_ended", "result": result},
        {"type": "stop_requested", "cause": cause, "waiting_for": [NASTY]},
        {"type": "run_ended", "stop_reason": NASTY, "receipt": receipt, "error": NASTY},
    ]
    body = "".join(f"id: {n}\nat: {n}.5\ndata: {json.dumps(event)}\n\n" for n, event in enumerate(events, 1))
    page.route("**/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))

    def without_receipt(route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"receipt": None})

    page.route(re.compile(r"/runs/[0-9a-f]+$"), without_receipt)
    prompt(page, "hello")
    page.locator("#receipt").wait_for()
    for place in (".tool-name", ".tool pre", ".child", "#receipt", ".notice", "svg.timeline"):
        expect(page.locator(place, has_text="<img src=x").first).to_be_attached()
    clean(page)


def clean(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe, main [onerror], main [onclick]").count() == 0


def test_what_a_person_is_asked_stays_text(page: Page, site: Site) -> None:
    page.goto(site.url)

    def poison(route) -> None:
        response = route.fetch()
        detail = response.json()
        if detail["run"]["state"] == "ended":
            asked = {"id": NASTY, "name": NASTY, "kind": "question", "call_id": NASTY, "tool_name": NASTY}
            detail["run"]["interrupts"] = [asked | {"arguments": {NASTY: NASTY}, "reason": NASTY, "expires_at": None}]
            detail["run"]["error"] = NASTY
        route.fulfill(response=response, json=detail)

    page.route(re.compile(r"/runs/[0-9a-f]+$"), poison)
    prompt(page, "hello")
    page.locator(".approval").wait_for()
    expect(page.locator(".approval")).to_contain_text("<img src=x")
    expect(page.locator("#receipt .problem")).to_contain_text("<img src=x")
    clean(page)


def test_the_policy_of_the_page_stops_inline_scripts(page: Page, site: Site) -> None:
    answer = page.goto(site.url)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page.locator("#draft").wait_for()


def test_the_modules_have_no_way_to_markup() -> None:
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|https?://(?!www\.w3\.org)"
    )
    for module in sorted(STATIC.glob("*.js")):
        assert not ways.search(module.read_text("utf-8")), module.name
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?://", page)
