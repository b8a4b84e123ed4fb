"""What the tests do on the console's pages, in a person's words."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Page, Route, expect

from .conftest import Site

# The machine may be busy; nothing here waits longer than it must.
expect.set_options(timeout=20_000)

# Where the server tells of one run.
RUN = re.compile(r"/runs/[0-9a-f]+$")


def prompt(page: Page, text: str) -> str:
    """Write a prompt and send it; the id of the run that was started."""
    page.fill("#draft", text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/runs/*")
    return page.url.rpartition("/")[2]


def begin_story(page: Page, site: Site) -> str:
    """Open the console and have a long story told; the id of the run, when its first words are there."""
    page.goto(site.url)
    run_id = prompt(page, "stream a story")
    answer(page, "The harbour")
    return run_id


def wait_for_run_after(page: Page, run_id: str) -> None:
    """Wait until the page has gone on to another run."""
    page.wait_for_function("id => !location.hash.endsWith(id)", arg=run_id)


def state_is(page: Page, text: str) -> None:
    """Wait until the state line contains this."""
    expect(page.locator("#state-line")).to_contain_text(text)


def run_state(page: Page, text: str) -> None:
    """Wait until the announced state is exactly this."""
    expect(page.locator("#state")).to_have_text(text)


def watch(page: Page) -> None:
    """Note everything that the state line says from now on; `seen` and `announced` tell. Nothing short is missed so."""
    page.evaluate("""() => {
      window.seen = [];
      window.announced = [];
      const line = document.getElementById("state-line");
      const state = document.getElementById("state");
      const note = (list, text) => { if (list.at(-1) !== text) list.push(text); };
      const look = () => { note(window.seen, line.textContent); note(window.announced, state.textContent); };
      new MutationObserver(look).observe(line, { childList: true, subtree: true });
    }""")


def seen(page: Page) -> list[str]:
    """What the state line has said since `watch`."""
    return page.evaluate("window.seen")


def announced(page: Page) -> list[str]:
    """What a screen reader has read out of it."""
    return page.evaluate("window.announced")


def answer(page: Page, text: str) -> None:
    """Wait until the agent has said this."""
    page.locator(".entry.assistant .words", has_text=text).first.wait_for()


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


def hold_the_first(page: Page, url: str | re.Pattern[str]) -> list[Route]:
    """Hold the first request to an address; it is in the list when it was made."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route(url, hold)
    return held
