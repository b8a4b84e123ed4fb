"""Much of everything: long results, long prompts, thousands of events, runs of hours."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import begin_story, prompt, requests_of, run_state, wait_for_run_after

# Whether the text is on the page. Sections that are far from the view are empty, so each is scrolled to.
SCROLLED_THROUGH = """async (said) => {
  const letters = (text) => text.replaceAll(/\\s/g, "");
  const frame = () => new Promise(requestAnimationFrame);
  const textOf = async (node) => {
    if (node.classList?.contains("md-section")) {
      node.scrollIntoView();
      for (let n = 0; n < 100 && !node.firstChild; n++) await frame();
    } else if (node.querySelector?.(".md-section")) {
      let all = "";
      for (const child of [...node.childNodes]) all += await textOf(child);
      return all;
    }
    return node.textContent;
  };
  for (const end = performance.now() + 20000; performance.now() < end; await frame()) {
    const words = document.querySelector(".entry.assistant .words");
    if (words && letters(await textOf(words)) === letters(said)) return true;
  }
  return false;
}"""
pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


@pytest.mark.promise("P3")
def test_a_very_long_result_can_be_read_to_its_end(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "flood me")
    run_state(page, "Finished")
    tool = page.get_by_role("group", name="Tool flood")
    tool.locator("summary").click()
    result = tool.get_by_label("Result of flood")
    expect(result).to_contain_text("more characters")
    expect(result).not_to_contain_text("the very last line")
    tool.get_by_role("button", name="Show all 300,018 characters").click()
    expect(result).to_contain_text("the very last line")
    expect(result).to_be_focused()


@pytest.mark.promise("P3")
def test_retry_of_a_run_whose_beginning_is_gone_asks_the_whole_question(page: Page, site: Site) -> None:
    page.goto(site.url)
    long = "hello " + "and then something that matters, " * 20
    first = page.request.post(f"{site.url}runs", data={"prompt": long}).json()["run"]["id"]
    page.goto(f"{site.url}#/runs/{first}")
    run_state(page, "Finished")
    receipt = page.request.get(f"{site.url}runs/{first}").json()["receipt"]
    end = {"type": "run_ended", "stop_reason": "end_turn", "receipt": receipt, "error": None}
    frames = [{"type": "gap", "first": 1, "last": 899}, end]
    body = "".join(f"id: {n}\ndata: {json.dumps(each)}\n\n" for n, each in enumerate(frames, 900))
    page.route("**/runs/*/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.reload()
    started = requests_of(page, "/runs")
    page.locator("#action-retry").click()
    wait_for_run_after(page, first)
    assert started[0]["prompt"] == long


@pytest.mark.promise("P3")
def test_thousands_of_events_are_all_shown(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = prompt(page, "chatter")
    run_state(page, "Finished")
    said = page.request.get(f"{site.url}runs/{run_id}").json()["messages"][-1]["content"][0]["text"]
    assert len(said) > 50_000
    assert page.evaluate(SCROLLED_THROUGH, said)
    page.reload()
    run_state(page, "Finished")
    assert page.evaluate(SCROLLED_THROUGH, said)  # the end is known before all that led to it is read again


def test_the_picture_of_a_run_of_hours_can_be_drawn(page: Page, site: Site) -> None:
    page.goto(site.url)
    drawn = page.evaluate("""async () => {
      const { timeline } = await import("./static/timeline.js");
      const { Story } = await import("./static/story.js");
      const story = new Story();
      story.apply({ type: "model_call_started", turn: 1, attempt: 1, model: "m" }, 0);
      for (let n = 0; n < 300_000; n++) story.tokens.push({ at: n / 10, total: n });
      return timeline(story, 30_000, 800).querySelectorAll("path").length;
    }""")
    assert drawn == 2


def test_the_picture_is_not_drawn_anew_for_every_word(page: Page, site: Site) -> None:
    begin_story(page, site)
    drawn, words = page.evaluate("""async () => {
      const counts = [0, 0];
      const count = (index) => new MutationObserver((records) => { counts[index] += records.length; });
      const observers = [count(0), count(1)];
      observers[0].observe(document.querySelector(".picture"), { childList: true });
      const text = { characterData: true, subtree: true };
      observers[1].observe(document.querySelector(".entry.assistant .blocks"), text);
      await new Promise((resolve) => setTimeout(resolve, 2000));
      return counts;
    }""")
    assert words > 2 * drawn > 0, (words, drawn)
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
