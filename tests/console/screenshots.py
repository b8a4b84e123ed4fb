"""Pictures of the console in its states, to be looked at: `make screenshots` keeps them in screenshots/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from .browser import ARGUMENTS, find_chromium
from .conftest import Site
from .console import prompt, run_state, state_is, wait_for_run_after
from .site import KEY, OPERATOR_KEY

OUT = Path("screenshots")
LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1200, "height": 900}},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "color_scheme": "dark"},
}


def shoot(page: Page, name: str, *, full: bool = False) -> None:
    page.screenshot(path=OUT / f"{name}.png", full_page=full)


def tour(browser: Browser, site: Site, look: str) -> None:
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    page.goto(site.url)
    prompt(page, "build the parser, please, and tell me when it is done")
    page.locator(".tool[data-state=running] .tool-name", has_text="build").wait_for()
    page.wait_for_timeout(1200)
    page.fill("#draft", "use the other branch")
    shoot(page, f"{look}-1-running")
    page.keyboard.press("Escape")
    page.wait_for_timeout(1100)
    shoot(page, f"{look}-2-stopping")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    shoot(page, f"{look}-3-stopped", full=True)
    page.goto(site.url)
    prompt(page, "stream me a story about a harbour")
    page.locator(".entry.assistant .words", has_text="argued").wait_for()
    page.locator("#stop").click()
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    shoot(page, f"{look}-4-cut-answer", full=True)
    page.goto(site.url)
    prompt(page, "deploy it")
    page.locator(".approval").wait_for()
    shoot(page, f"{look}-5-approval", full=True)
    page.goto(site.url)
    prompt(page, "edit it")
    page.locator(".approval .preview").first.wait_for()
    shoot(page, f"{look}-5-approval-diff", full=True)
    page.goto(site.url)
    prompt(page, "stubborn work")
    page.locator(".tool[data-state=running]").wait_for()
    page.keyboard.press("Escape")
    state_is(page, "Stopping")
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()
    shoot(page, f"{look}-6-forced", full=True)
    page.goto(site.url)
    page.locator(".run-row").first.wait_for()
    shoot(page, f"{look}-7-runs")
    contents(page, site, look)
    decided(page, site, look)
    page.goto(site.url + "#/usage")
    page.locator(".chart").wait_for()
    shoot(page, f"{look}-8-usage", full=True)
    context.close()


def contents(page: Page, site: Site, look: str) -> None:
    """Markdown, trees and diffs, a second prompt below them, the trace, and the inbox."""
    page.goto(site.url)
    first = prompt(page, "markdown please")
    run_state(page, "Finished")
    page.locator(".tool summary").first.click()
    shoot(page, f"{look}-20-markdown", full=True)
    page.fill("#draft", "swarm of tools")
    page.keyboard.press("Enter")
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    page.locator("#trace > summary").click()
    page.locator("#trace .trace-rows summary").first.click()
    page.locator("#trace li[data-kind=agent] > details > summary").click()
    shoot(page, f"{look}-21-session-and-trace", full=True)
    page.goto(f"{site.url}#/inbox")
    page.locator(".approval").first.wait_for()
    shoot(page, f"{look}-22-inbox")
    if page.locator("#sidebar-toggle").is_visible():
        page.locator("#sidebar-toggle").click()
        shoot(page, f"{look}-23-sessions")


def decided(page: Page, site: Site, look: str) -> None:
    """An approval that counts for later, the line that it leaves, the list of such approvals, and the audit."""
    page.goto(site.url)
    first = prompt(page, "deploy it")
    page.get_by_label("If you approve, it counts for").select_option("pattern")
    page.get_by_label("How version is compared").select_option("like")
    page.get_by_label("The value of version").fill("1.*")
    shoot(page, f"{look}-24-approve-later-calls", full=True)
    page.get_by_role("button", name="Approve deploy").click()
    wait_for_run_after(page, first)
    run_state(page, "Finished")
    page.fill("#draft", "deploy it again")
    before = page.url.rpartition("/")[2]
    page.keyboard.press("Enter")
    wait_for_run_after(page, before)
    run_state(page, "Finished")
    shoot(page, f"{look}-25-who-approved", full=True)
    page.goto(f"{site.url}#/inbox")
    page.locator(".standing li").first.wait_for()
    shoot(page, f"{look}-26-approved-in-advance", full=True)
    page.goto(f"{site.url}#/audit")
    page.locator(".audit tbody tr").nth(2).wait_for()
    shoot(page, f"{look}-27-audit")
    for approval in page.request.get(f"{site.url}approvals").json()["approvals"]:
        page.request.delete(f"{site.url}approvals/{approval['id']}")


def stopped(page: Page) -> None:
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.locator("#receipt").wait_for()


def more(browser: Browser, site: Site, look: str) -> None:
    """The states that one does not see every day."""
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    frame = 'id: x.1\ndata: {"type": "list", "runs": []}\n\n'
    page.route("**/events", lambda route: route.fulfill(body=frame, content_type="text/event-stream"))
    page.goto(site.url)
    page.locator(".empty").wait_for()
    shoot(page, f"{look}-10-no-runs")
    page.unroute_all(behavior="ignoreErrors")
    page.goto(f"{site.url}#/runs/nothing")
    run_state(page, "Not found")
    shoot(page, f"{look}-11-not-found")
    page.goto(site.url)
    prompt(page, "fail for me")
    run_state(page, "Failed")
    page.locator("#receipt").wait_for()
    shoot(page, f"{look}-12-failed", full=True)
    page.goto(site.url)
    prompt(page, "write it down")
    page.locator(".entry.assistant .words", has_text="harbour").wait_for()
    stopped(page)
    page.locator("#action-undo").click()
    page.locator("#undone").wait_for()
    shoot(page, f"{look}-13-undone", full=True)
    page.goto(site.url)
    prompt(page, "ask first")
    page.locator(".approval").first.wait_for()
    page.get_by_role("button", name="Approve deploy").click()
    shoot(page, f"{look}-14-two-questions", full=True)
    page.goto(site.url)
    prompt(page, "stream a story")
    page.locator(".entry.assistant .words", has_text="Nobody came").wait_for()
    page.fill("#draft", "build the parser instead")
    page.locator("#steer").click()
    page.locator(".tool[data-state=running] .tool-name", has_text="build").wait_for()
    page.locator("#stop-later").click()
    state_is(page, "Stopping after this turn")
    page.evaluate("scrollTo(0, 0)")
    shoot(page, f"{look}-15-steered-and-patient")
    stopped(page)
    page.goto(site.url)
    prompt(page, "flood me with it")
    run_state(page, "Finished")
    page.locator(".tool summary").click()
    shoot(page, f"{look}-16-long-result", full=True)
    page.goto(site.url)
    prompt(page, "hello")
    run_state(page, "Finished")
    long_usage(page)
    page.goto(f"{site.url}#/usage")
    page.locator(".chart").wait_for()
    shoot(page, f"{look}-17-a-month", full=True)
    page.unroute_all(behavior="ignoreErrors")
    page.goto(site.wired)
    prompt(page, "stream a story")
    page.locator(".entry.assistant .words", has_text="harbour").wait_for()
    site.tell("cut")
    page.keyboard.press("Escape")
    state_is(page, "Stop not delivered yet")
    shoot(page, f"{look}-18-no-network")
    site.tell("mend")
    run_state(page, "Stopped")
    context.close()


def long_usage(page: Page) -> None:
    """A month of two models, some days less sure than others, and some without a price."""

    def invented(route: Route) -> None:
        response = route.fetch()
        report = response.json()
        one = report["days"][0]["usage"]
        days = []
        for day in range(30, 0, -1):
            for model, factor in (("claude-sonnet", 900), ("local-llama", 300)):
                output = day * 37 % 19 * factor
                figure = {
                    "value": output,
                    "low": round(output * 0.8),
                    "high": round(output * 1.3),
                    "source": "tokenized",
                }
                value = str(output / 50_000)
                money = {"value": value, "low": value, "high": str(output / 40_000), "currency": "USD"}
                cost = None if model == "local-llama" else money
                days.append(
                    {
                        "day": f"2026-10-{day:02}",
                        "model": model,
                        "agent": "writer",
                        "usage": one | {"output": figure, "cost": cost},
                    }
                )
        route.fulfill(response=response, json=report | {"days": days})

    page.route(re.compile(r"/usage([?]|$)"), invented)


def key_dialog(browser: Browser, look: str) -> None:
    site = Site("--keys")
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    page.goto(site.url)
    page.get_by_label("API key").fill("wrong-wrong-wrong-wrong")
    page.keyboard.press("Enter")
    page.locator("#key-error").wait_for()
    shoot(page, f"{look}-19-key")
    for key in (KEY, OPERATOR_KEY):
        page.request.post(f"{site.url}runs", data={"prompt": "hello"}, headers={"Authorization": f"Bearer {key}"})
    page.goto(f"{site.url}#/usage")
    page.get_by_label("API key").fill(OPERATOR_KEY)
    page.keyboard.press("Enter")
    page.get_by_label("Which key").select_option("All keys")
    page.get_by_role("region", name="Usage by key").wait_for()
    shoot(page, f"{look}-19-usage-by-key", full=True)
    context.close()
    site.close()


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("There is no chromium here. Install one (apt-get install chromium), or set CHROMIUM.")
    OUT.mkdir(exist_ok=True)
    site = Site()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            for look in LOOKS:
                tour(browser, site, look)
            for look in ("desktop", "phone-dark"):
                more(browser, site, look)
                key_dialog(browser, look)
            browser.close()
    finally:
        site.close()
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}/: look at them.")


if __name__ == "__main__":
    main()
