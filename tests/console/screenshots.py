"""Pictures of the console in its states, to be looked at: `make screenshots` keeps them in screenshots/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from .browser import ARGUMENTS, find_chromium
from .conftest import Site
from .console import prompt, run_state, state_is

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
    page.goto(site.url + "#/usage")
    page.locator(".chart").wait_for()
    shoot(page, f"{look}-8-usage", full=True)
    context.close()


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
            browser.close()
    finally:
        site.close()
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}/: look at them.")


if __name__ == "__main__":
    main()
