"""Where Stop is: at the bottom edge of the window, and at the same place from the first frame of a run to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import ARGUMENTS, find_chromium
from .conftest import Site
from .console import answer, prompt, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]

WINDOWS = {"desktop": (1280, 800), "narrow": (1000, 700), "phone": (390, 844)}

# Notes where Stop is in each frame, and the bottom edge of the composer, which is there before and after the run too.
WATCH = """() => {
  window.places = { stop: [], edge: [], modes: [] };
  const note = (list, value) => { if (list.at(-1) !== value) list.push(value); };
  const look = () => {
    const composer = document.querySelector(".composer");
    const stop = document.getElementById("stop");
    if (composer) note(window.places.edge, Math.round(composer.getBoundingClientRect().bottom));
    if (stop && !stop.hidden) {
      const { left, top, right, bottom } = stop.getBoundingClientRect();
      note(window.places.stop, [left, top, right, bottom].map(Math.round).join(" "));
      note(window.places.modes, composer.dataset.mode);
    }
    requestAnimationFrame(look);
  };
  look();
}"""


@pytest.fixture(scope="module")
def bars(browser: Browser) -> Iterator[Browser]:
    """A browser whose scroll bars take room, as on most desktops."""
    made = browser.browser_type.launch(
        executable_path=find_chromium(), args=ARGUMENTS, ignore_default_args=["--hide-scrollbars"]
    )
    yield made
    made.close()


@pytest.fixture(params=WINDOWS)
def window(bars: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = WINDOWS[request.param]
    context = bars.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def open_and_watch(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.locator("#draft").wait_for()
    page.evaluate(WATCH)


def check_places(page: Page, modes: list[str]) -> None:
    places: dict[str, Any] = page.evaluate("window.places")
    assert [mode for mode in places["modes"] if mode in modes] == modes
    assert len(places["stop"]) == 1, places["stop"]
    assert len(places["edge"]) == 1, places["edge"]
    height = page.evaluate("innerHeight")
    assert height - 12 <= places["edge"][0] <= height


@pytest.mark.promise("P1")
def test_stop_does_not_move_while_a_run_starts_streams_and_ends(window: Page, site: Site) -> None:
    open_and_watch(window, site)
    prompt(window, "grow until the window is full")
    run_state(window, "Finished")
    window.locator("#receipt").wait_for()
    expect(window.locator("svg.timeline")).to_be_attached()
    assert window.evaluate("document.documentElement.scrollHeight > 1.5 * innerHeight")
    check_places(window, ["running"])


@pytest.mark.promise("P1")
def test_stop_does_not_move_while_it_is_pressed_again(window: Page, site: Site) -> None:
    open_and_watch(window, site)
    prompt(window, "stubborn work")
    window.locator(".tool[data-state=running]").wait_for()
    window.fill("#draft", "a draft\nof two lines")
    window.get_by_text("More ways to stop").click()
    window.locator("#stop").click()
    expect(window.locator("#stop")).to_have_text("Force stop")
    window.locator("#stop").click()
    run_state(window, "Stopped")
    check_places(window, ["running", "stopping", "forcing"])


AT_THE_END = "() => scrollY + innerHeight > document.documentElement.scrollHeight - 4"


def test_the_answer_stays_in_view_below_a_long_session_and_above_a_long_draft(page: Page, site: Site) -> None:
    """The timeline appears in the first second of a run, and a draft is pasted: neither is a person who scrolls up."""
    page.goto(site.url)
    first = prompt(page, "grow until the window is full")
    run_state(page, "Finished")
    page.locator("#receipt").wait_for()
    page.fill("#draft", "stream a story")
    page.keyboard.press("Enter")
    wait_for_run_after(page, first)
    page.locator(".timeline-card svg").first.wait_for()
    answer(page, "Somebody had left")
    page.wait_for_function(AT_THE_END, timeout=5_000)
    page.fill("#draft", "a line\n" * 12)
    answer(page, "could hardly be seen")
    page.wait_for_function(AT_THE_END, timeout=5_000)
    place = page.evaluate("scrollBy(0, -200), scrollY")
    page.keyboard.type("more words")
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 50)))")
    assert page.evaluate("scrollY") == place  # a person who reads further up is left there
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
