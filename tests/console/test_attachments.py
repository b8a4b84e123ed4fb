"""Images and PDFs with a prompt: chosen, or dropped and pasted as a browser gives them."""

from __future__ import annotations

import base64

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import prompt, requests_of, run_state

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

GIVE = """([how, type, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type }));
  const target = document.getElementById("draft");
  const options = { bubbles: true, cancelable: true };
  const event = how === "drop" ? new DragEvent("drop", { ...options, dataTransfer: given })
    : new ClipboardEvent("paste", { ...options, clipboardData: given });
  target.dispatchEvent(event);
}"""


@pytest.mark.parametrize("how", ["drop", "paste", "choose"])
def test_an_image_goes_with_the_prompt_and_is_shown(page: Page, site: Site, how: str) -> None:
    page.goto(site.url)
    page.locator("#draft").wait_for()
    if how == "choose":
        file = {"name": "dot.png", "mimeType": "image/png", "buffer": base64.b64decode(PIXEL)}
        page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    else:
        page.evaluate(GIVE, [how, "image/png", "dot.png", PIXEL])
    expect(page.get_by_role("list", name="Attachments").locator("li")).to_have_count(1)
    started = requests_of(page, "/runs")
    prompt(page, "hello, what is this?")
    run_state(page, "Finished")
    image = {"type": "image", "media_type": "image/png", "data": PIXEL}
    assert started[0]["prompt"] == [{"type": "text", "text": "hello, what is this?"}, image]
    expect(page.locator(".entry.user .words")).to_have_text("hello, what is this?")
    expect(page.locator(".entry.user .pictures img")).to_have_attribute("src", f"data:image/png;base64,{PIXEL}")
    expect(page.get_by_role("list", name="Attachments")).to_be_hidden()


def test_what_is_no_image_and_no_pdf_is_not_taken_and_what_is_taken_can_be_removed(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.locator("#draft").wait_for()
    page.evaluate(GIVE, ["drop", "image/svg+xml", "evil.svg", base64.b64encode(b"<svg onload='hacked=1'/>").decode()])
    expect(page.get_by_role("alert")).to_contain_text("evil.svg is not attached")
    page.evaluate(GIVE, ["drop", "application/pdf", "paper.pdf", base64.b64encode(b"%PDF-1.4").decode()])
    page.get_by_role("button", name="Remove paper.pdf").click()
    expect(page.get_by_role("list", name="Attachments")).to_be_hidden()
    expect(page.locator("#attach")).to_be_focused()


HOLD_READING = """
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) { window.letRead = () => read.call(this, file); };
"""


@pytest.mark.promise("P3")
def test_a_prompt_that_is_sent_while_its_file_is_read_has_the_file(page: Page, site: Site) -> None:
    page.add_init_script(HOLD_READING)
    page.goto(site.url)
    page.locator("#draft").wait_for()
    page.evaluate(GIVE, ["drop", "image/png", "dot.png", PIXEL])
    started = requests_of(page, "/runs")
    page.fill("#draft", "hello, what is this?")
    page.keyboard.press("Enter")
    page.evaluate("letRead()")
    page.wait_for_url("**/#/runs/*")
    image = {"type": "image", "media_type": "image/png", "data": PIXEL}
    assert started[0]["prompt"] == [{"type": "text", "text": "hello, what is this?"}, image]
