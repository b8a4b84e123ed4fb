"""What the tests do on the console's pages, in a person's words."""

from __future__ import annotations

from playwright.sync_api import Page, expect

# The machine may be busy; nothing here waits longer than it must.
expect.set_options(timeout=20_000)


def prompt(page: Page, text: str) -> str:
    """Write a prompt and send it; the id of the run that was started."""
    page.fill("#draft", text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/runs/*")
    return page.url.rpartition("/")[2]


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
